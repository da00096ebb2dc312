"""Who may do what. Rights come from Django groups; being an administrator never lifts the second-person rule."""

from __future__ import annotations

from django.contrib.auth.models import User

from planner.errors import NotAllowed

PLAN = "planner.plan_fleet"
APPROVE = "planner.approve_plan"
OPERATE = "planner.operate_fleet"
MANAGE = "planner.manage_fleet"

# Group -> rights. Everybody who can sign in may read.
GROUPS: dict[str, tuple[str, ...]] = {
    "viewer": (),
    "planner": (PLAN,),
    "approver": (APPROVE, OPERATE),
    "operator": (OPERATE,),
    "admin": (PLAN, APPROVE, OPERATE, MANAGE),
}

_WORDS = {
    PLAN: "plan for this fleet (group planner)",
    APPROVE: "approve or reject plans (group approver)",
    OPERATE: "operate this fleet (group operator or approver)",
    MANAGE: "manage fleets (group admin)",
}


def require(user: User, right: str) -> None:
    """Raise NotAllowed unless the user holds the right."""
    if not user.is_active or not user.has_perm(right):
        raise NotAllowed(f"{user.get_username()} may not {_WORDS[right]}.")
