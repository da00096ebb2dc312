"""What every page needs."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from planner.models import Fleet


def navigation(request: HttpRequest) -> dict[str, Any]:
    """Fleets for the menu of signed-in people."""
    if not getattr(request, "user", None) or not request.user.is_authenticated:
        return {}
    return {"nav_fleets": Fleet.objects.only("slug", "name").order_by("slug")[:20]}
