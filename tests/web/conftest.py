"""Clients signed in as each user of the cast, and a plan with a verdict."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from planner.models import Fleet, Plan
from tests import factories as make
from tests.factories import Cast

SignIn = Callable[[User], Client]


@pytest.fixture
def sign_in() -> SignIn:
    """A client that is signed in as the person, with CSRF checks off as Django's test client has them."""

    def enter(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return enter


@pytest.fixture
def replayed(cast: Cast, fleet: Fleet) -> Plan:
    """A plan whose replay is finished and whose checklist was evaluated."""
    return make.replayed_plan(cast, fleet)


def texts(response: object) -> list[str]:
    """The messages that a page shows."""
    return [str(message) for message in response.context["messages"]]  # type: ignore[attr-defined]
