"""Fields, constraints and triggers that several models share."""

from __future__ import annotations

from typing import Any

import pgtrigger
from django.db import models

# A digest is 64 lower-case hex digits everywhere; "sha256:" is added in documents for routers.
DIGEST_LENGTH = 64


class Versioned(models.Model):
    """A row with a version: `version` grows by one with every change and is the row's strong ETag."""

    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True

    def bump(self, *fields: str) -> None:
        """Save the named fields as one new version. Call it on a locked row."""
        self.version += 1
        self.save(update_fields=[*fields, "version", "updated_at"])


def immutable(*, allow_delete: bool = False) -> list[Any]:
    """Return triggers that refuse UPDATE, and DELETE unless `allow_delete` (retention) is set."""
    triggers = [pgtrigger.Protect(name="no_update", operation=pgtrigger.Update)]
    if not allow_delete:
        triggers.append(pgtrigger.Protect(name="no_delete", operation=pgtrigger.Delete))
    return triggers


def append_only() -> list[Any]:
    """Return the triggers of `immutable` and one that refuses TRUNCATE."""
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
    """Return a constraint that accepts only the states in `choices`."""
    return models.CheckConstraint(condition=models.Q(**{f"{field}__in": list(choices.values)}), name=name)


class StateMachine(models.TextChoices):
    """States with allowed transitions, which TRANSITIONS lists."""

    def may_become(self, target: StateMachine) -> bool:
        """Whether the transition to `target` is allowed."""
        return target.value in TRANSITIONS[type(self)].get(self.value, ())


# Filled beside each StateMachine (enums cannot hold a plain dict member).
TRANSITIONS: dict[type[StateMachine], dict[str, tuple[str, ...]]] = {}
