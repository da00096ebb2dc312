"""Template context of every page."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from planner.models import BreakGlass, Fleet
from planner.selectors.access import rights


class May:
    """Rights of the user on the fleet that the address names, else on all fleets.

    Templates use it to show or hide forms. The services check the rights again.
    """

    def __init__(self, request: HttpRequest) -> None:
        self._request = request

    @cached_property
    def _fleet(self) -> Fleet | None:
        match = self._request.resolver_match
        slug = match.kwargs.get("slug") if match else None
        return Fleet.objects.filter(slug=slug).first() if slug else None

    def _holds(self, right: str) -> bool:
        user = self._request.user
        return user.has_perm(right) or rights.may(user, right, self._fleet)

    @cached_property
    def break_glass(self) -> list[BreakGlass]:
        """Open or unreviewed break-glass of the fleet of the page; shown to all users."""
        match = self._request.resolver_match
        slug = match.kwargs.get("slug") if match else None
        if slug is None:
            return []
        rows = BreakGlass.objects.filter(fleet__slug=slug, reviewed_at=None)
        return list(rows.select_related("opened_by").order_by("id"))

    @cached_property
    def plan(self) -> bool:
        """Import, calibrate, order and submit plans."""
        return self._holds(rights.PLAN)

    @cached_property
    def approve(self) -> bool:
        """Approve or reject the plans of others."""
        return self._holds(rights.APPROVE)

    @cached_property
    def operate(self) -> bool:
        """Move rollouts and fall back."""
        return self._holds(rights.OPERATE)

    @cached_property
    def manage(self) -> bool:
        """Change destinations and policy."""
        return self._holds(rights.MANAGE)


def navigation(request: HttpRequest) -> dict[str, Any]:
    """Fleets and rights of a signed-in user."""
    if not getattr(request, "user", None) or not request.user.is_authenticated:
        return {"sso_name": settings.OIDC_NAME}
    fleets = rights.visible_fleets(request.user).only("slug", "name").order_by("slug")
    return {"nav_fleets": fleets[:20], "may": May(request)}
