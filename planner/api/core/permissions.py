"""What a token's scopes open. Rights of the user behind it are checked by the services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from planner.models import ApiToken, Fleet
from planner.selectors.access import rights

if TYPE_CHECKING:  # DRF's views import this module while they load
    from rest_framework.views import APIView

# What no token does, whatever its scopes: a person signs in for it.
NEVER_BY_TOKEN = "person"  # noqa: S105 - a word, not a password


class ScopedPermission(BasePermission):
    """Signed-in people read everything; a token needs the scope that the view names for the action."""

    message = "This token lacks the scope for that."

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether the view's scope for this method is among the token's."""
        if not request.user or not request.user.is_authenticated:
            return False
        token = request.auth
        if not isinstance(token, ApiToken):
            return True
        needed = scope_of(view, request.method or "GET")
        if needed == NEVER_BY_TOKEN:
            self.message = "A token cannot do this; a person must sign in."
            return False
        return needed in token.scopes

    def has_object_permission(self, request: Request, view: APIView, obj: Any) -> bool:
        """A token of one fleet sees that fleet only, and nobody a fleet on which they have no role."""
        fleet_id, token = fleet_id_of(obj), request.auth
        if fleet_id is None:
            return True
        if isinstance(token, ApiToken) and token.fleet_id not in (None, fleet_id):
            self.message = "This token is for another fleet."
            return False
        self.message = "You have no role on this fleet."
        return rights.sees_all(request.user) or rights.visible_fleets(request.user).filter(pk=fleet_id).exists()


def scope_of(view: APIView, method: str) -> str:
    """The scope that a view asks for: `scopes[action]`, else read for safe methods and plan for others."""
    scopes: dict[str, str] = getattr(view, "scopes", {})
    action = getattr(view, "action", None) or method.lower()
    return scopes.get(action, "read" if method in SAFE_METHODS else "plan")


def fleet_id_of(obj: Any) -> int | None:
    """The fleet that an object belongs to, None when it belongs to none."""
    if isinstance(obj, Fleet):
        return obj.pk
    for path in (("fleet_id",), ("plan", "fleet_id"), ("evaluation", "plan", "fleet_id")):
        value = obj
        for name in path:
            value = getattr(value, name, None)
        if value is not None:
            return int(value)
    return None
