"""What several nouns share."""

from __future__ import annotations

from typing import Any

import pgtrigger
from django.db import models

# A digest is written as 64 lower-case hex digits everywhere; "sha256:" is added where a router reads it.
DIGEST_LENGTH = 64


class Versioned(models.Model):
    """A row that changes: `version` grows by one with every change and is its strong ETag."""

    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True

    def bump(self, *fields: str) -> None:
        """Save the named fields as one new version. Call it on a row that is locked."""
        self.version += 1
        self.save(update_fields=[*fields, "version", "updated_at"])


def immutable(*, allow_delete: bool = False) -> list[Any]:
    """Triggers that refuse UPDATE, and DELETE unless retention may remove such rows, on rows that are results."""
    triggers = [pgtrigger.Protect(name="no_update", operation=pgtrigger.Update)]
    if not allow_delete:
        triggers.append(pgtrigger.Protect(name="no_delete", operation=pgtrigger.Delete))
    return triggers


def append_only() -> list[Any]:
    """As `immutable`, and TRUNCATE is refused too."""
    return [
        *immutable(),
        pgtrigger.Trigger(
            name="no_truncate",
            operation=pgtrigger.Truncate,
            when=pgtrigger.Before,
            level=pgtrigger.Statement,
            func="RAISE EXCEPTION 'this table is append-only: TRUNCATE refused';",
        ),
    ]


def known_state(choices: type[models.TextChoices], name: str, field: str = "state") -> models.CheckConstraint:
    """Only the states that the code knows."""
    return models.CheckConstraint(condition=models.Q(**{f"{field}__in": list(choices.values)}), name=name)


class StateMachine(models.TextChoices):
    """States whose allowed transitions stand in TRANSITIONS, beside the states they speak of."""

    def may_become(self, target: StateMachine) -> bool:
        """Whether the change to `target` is one of the allowed transitions."""
        return target.value in TRANSITIONS[type(self)].get(self.value, ())


# Filled beside each StateMachine (enums cannot hold a plain dict member).
TRANSITIONS: dict[type[StateMachine], dict[str, tuple[str, ...]]] = {}
