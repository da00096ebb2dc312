"""Who holds which role."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db.models import Count, Q
from django.db.models.functions import Lower

from planner.models import Fleet, FleetRole

ROWS = 500  # Accounts on one page.


def accounts_page() -> dict[str, object]:
    """Every account with its roles on all fleets and on single ones, and accounts that share an e-mail address."""
    users = list(User.objects.prefetch_related("groups__fleet_role__fleet").order_by("username")[:ROWS])
    for user in users:
        held = list(user.groups.all())
        user.on_all = [g.name for g in held if not hasattr(g, "fleet_role")]  # type: ignore[attr-defined]  # set for the page alone
        user.on_one = [g.fleet_role for g in held if hasattr(g, "fleet_role")]  # type: ignore[attr-defined]  # set for the page alone
    return {"accounts": users, "shared": shared_addresses()}


def shared_addresses() -> list[tuple[str, list[str]]]:
    """E-mail addresses of several active accounts, which may belong to one person."""
    active = User.objects.filter(is_active=True).exclude(email="").annotate(address=Lower("email"))
    shared = active.values("address").annotate(n=Count("pk")).filter(n__gt=1).values("address")
    found: dict[str, list[str]] = {}
    for address, name in active.filter(address__in=shared).order_by("username").values_list("address", "username"):
        found.setdefault(address, []).append(name)
    return sorted(found.items())


def roles_page(fleet: Fleet) -> dict[str, object]:
    """Who holds a role on this fleet: by the groups of the fleet, and by those of all fleets."""
    here = [
        (role.role, sorted(user.username for user in role.group.user_set.all()))
        for role in FleetRole.objects.filter(fleet=fleet).prefetch_related("group__user_set").order_by("role")
    ]
    everywhere = list(
        User.objects.filter(Q(is_superuser=True) | Q(groups__fleet_role=None, groups__isnull=False), is_active=True)
        .distinct()
        .order_by("username")[:ROWS]
    )
    names = list(User.objects.filter(is_active=True).order_by("username").values_list("username", flat=True)[:ROWS])
    return {"here": here, "everywhere": everywhere, "names": names}
