"""Permissions by token scopes. The services check the rights of the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from planner.models import ApiToken, Fleet
from planner.selectors.access import rights

if TYPE_CHECKING:  # DRF's views import this module while they load
    from rest_framework.views import APIView

# Scope of actions that no token may do; a user must sign in.
NEVER_BY_TOKEN = "person"  # noqa: S105 - a word, not a password


class ScopedPermission(BasePermission):
    """Signed-in users may read. A token needs the scope that the view names for the action."""

    message = "This token lacks the scope for this action. Create a token with the scope."

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether the token has the scope of the view for this method."""
        if not request.user or not request.user.is_authenticated:
            return False
        token = request.auth
        if not isinstance(token, ApiToken):
            return True
        needed = scope_of(view, request.method or "GET")
        if needed == NEVER_BY_TOKEN:
            self.message = "A token cannot do this. Sign in as a user."
            return False
        return needed in token.scopes

    def has_object_permission(self, request: Request, view: APIView, obj: Any) -> bool:
        """A token of one fleet sees this fleet only. A user sees only fleets with a role.

        Parameters
        ----------
        request
            The request.
        view
            The view.
        obj
            The object.

        Returns
        -------
        bool
            Whether access is allowed.
        """
        fleet_id, token = fleet_id_of(obj), request.auth
        if fleet_id is None:
            return True
        if isinstance(token, ApiToken) and token.fleet_id not in (None, fleet_id):
            self.message = "This token is for another fleet."
            return False
        self.message = "You have no role on this fleet."
        return rights.sees_all(request.user) or rights.visible_fleets(request.user).filter(pk=fleet_id).exists()


def scope_of(view: APIView, method: str) -> str:
    """The scope that a view requires: `scopes[action]`, else read for safe methods and plan for others."""
    scopes: dict[str, str] = getattr(view, "scopes", {})
    action = getattr(view, "action", None) or method.lower()
    return scopes.get(action, "read" if method in SAFE_METHODS else "plan")


def fleet_id_of(obj: Any) -> int | None:
    """Id of the fleet of an object; None without a fleet."""
    if isinstance(obj, Fleet):
        return obj.pk
    for path in (("fleet_id",), ("plan", "fleet_id"), ("evaluation", "plan", "fleet_id")):
        value = obj
        for name in path:
            value = getattr(value, name, None)
        if value is not None:
            return int(value)
    return None
