"""Comments on a plan."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction

from planner.errors import Invalid, NotAllowed
from planner.models import Plan, PlanComment
from planner.selectors.access import rights
from planner.services.audit.events import record_event

MAX_COMMENT_CHARS = 4_000


@transaction.atomic
def comment_plan(*, acting_user: User, plan: Plan, text: str) -> PlanComment:
    """Comment on a plan, in any of its states. The comment is kept permanently, with the evidence of that moment.

    Parameters
    ----------
    acting_user, plan
        A user who sees the fleet, and the plan.
    text
        1 to 4,000 characters without outer blanks, which are removed.

    Returns
    -------
    PlanComment
        The stored comment.

    Raises
    ------
    NotAllowed
        When the user does not see the fleet.
    Invalid
        When the text is blank or too long.
    """
    if not rights.sees(acting_user, plan.fleet):
        raise NotAllowed(f"{acting_user.get_username()} does not see {plan.fleet}.")
    text = text.strip()
    if not text:
        raise Invalid("a comment must not be empty", field="text")
    if len(text) > MAX_COMMENT_CHARS:
        raise Invalid(f"enter at most {MAX_COMMENT_CHARS:,} characters", field="text")
    digest = plan.gate_evaluations.order_by("-id").values_list("evidence_digest", flat=True).first() or ""
    row = PlanComment.objects.create(plan=plan, author=acting_user, text=text, evidence_digest=digest)
    record_event(
        "plan.commented",
        acting_user=acting_user,
        fleet=plan.fleet,
        subject=plan,
        after={"comment": row.pk, "characters": len(text)},
        evidence_digest=digest,
    )
    return row
