"""Leaves one row a call, and says so."""

import os

from django.contrib.contenttypes.models import ContentType
from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    def handle(self, **_options: object) -> None:
        if os.environ.get("TEST_FIRST_RUN_FAILS"):
            raise CommandError("the sample could not be made")
        number = ContentType.objects.filter(app_label="first_run").count()
        ContentType.objects.create(app_label="first_run", model=f"call{number}")
        print(f"first_run call {number}", flush=True)  # noqa: T201
