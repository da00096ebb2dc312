"""Shared parts of commands: the acting user, `--json`, and refusals as one line."""

from __future__ import annotations

import argparse
import datetime as dt
import getpass
import json
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser

from planner.errors import Refused
from planner.ingest import ImportProblem
from planner.models import Fleet, Plan


class PlannerCommand(BaseCommand):
    """A command that calls one service and prints its outcome, as text or with `--json` as one JSON object."""

    def add_arguments(self, parser: CommandParser) -> None:
        """`--user` and `--json` on every command."""
        parser.add_argument("--user", help="acting account (default: your login name)")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command; a refusal becomes one line and exit status 1."""
        self.as_json: bool = options["json"]
        try:
            self.run(user_named(options["user"]), options)
        except (Refused, ImportProblem) as refusal:
            if self.as_json:
                self.stdout.write(json.dumps({"error": str(refusal), "code": refusal.code}))
            raise CommandError(str(refusal)) from refusal

    def run(self, user: User, options: dict[str, Any]) -> None:
        """What the command does."""
        raise NotImplementedError

    def say(self, text: str, **values: Any) -> None:
        """Print the outcome."""
        self.stdout.write(json.dumps(values, default=str) if self.as_json else text)


def moment(text: str) -> dt.datetime:
    """A time with its zone, from the command line."""
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an ISO 8601 time such as 2026-03-14T10:00:00+00:00"
        ) from error
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone; add +00:00 for UTC")
    return found


def user_named(name: str | None) -> User:
    """The acting account."""
    name = name or getpass.getuser()
    user = User.objects.filter(username=name, is_active=True).first()
    if user is None:
        raise CommandError(f"no active account is named {name!r}; name one with --user")
    return user


def fleet_named(slug: str) -> Fleet:
    """The fleet with that slug."""
    fleet = Fleet.objects.filter(slug=slug).first()
    if fleet is None:
        known = ", ".join(Fleet.objects.values_list("slug", flat=True)) or "none"
        raise CommandError(f"no fleet is named {slug!r}; known: {known}")
    return fleet


def plan_numbered(fleet: Fleet, number: int) -> Plan:
    """Plan `number` of a fleet."""
    plan = fleet.plans.filter(number=number).first()
    if plan is None:
        raise CommandError(f"fleet {fleet.slug} has no plan {number}")
    return plan
