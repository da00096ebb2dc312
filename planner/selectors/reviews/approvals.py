"""Decisions on a plan that count at this moment: the same rule for services, pages and the inbox."""

from __future__ import annotations

import datetime as dt

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.utils import timezone

from planner.models import Fleet, FleetRole
from planner.roles import APPROVE, GROUPS


def in_force(now: dt.datetime | None = None) -> Q:
    """Decisions that were not withdrawn and have not expired."""
    return Q(withdrawn_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now or timezone.now()))


def approvers_of(fleet: Fleet | int) -> QuerySet[User]:
    """The active accounts with the right to approve, everywhere or on this fleet."""
    app, codename = APPROVE.split(".")
    permission = {"codename": codename, "content_type__app_label": app}
    here = FleetRole.objects.filter(fleet=fleet, role__in=[name for name, held in GROUPS.items() if APPROVE in held])
    everywhere = User.objects.filter(
        Q(is_superuser=True)
        | Q(pk__in=User.objects.filter(*_with("user_permissions", permission)).values("pk"))
        | Q(pk__in=User.objects.filter(*_with("groups__permissions", permission)).values("pk"))
        | Q(pk__in=User.objects.filter(groups__in=here.values("group")).values("pk"))
    )
    return everywhere.filter(is_active=True)


def _with(place: str, permission: dict[str, str]) -> list[Q]:
    return [Q(**{f"{place}__{name}": value for name, value in permission.items()})]
