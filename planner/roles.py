"""The rights of the console and the roles that hold them."""

from __future__ import annotations

PLAN = "planner.plan_fleet"
APPROVE = "planner.approve_plan"
OPERATE = "planner.operate_fleet"
MANAGE = "planner.manage_fleet"

# Group -> rights. Each of them may read.
GROUPS: dict[str, tuple[str, ...]] = {
    "viewer": (),
    "planner": (PLAN,),
    "approver": (APPROVE, OPERATE),
    "operator": (OPERATE,),
    "admin": (PLAN, APPROVE, OPERATE, MANAGE),
}
