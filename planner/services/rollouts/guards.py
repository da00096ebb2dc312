"""What the transitions of rollouts share: who may pass what, and how a rollout takes a step or ends."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import User
from django.utils import timezone

from planner.errors import Conflict, Invalid
from planner.models import BreakGlass, Fleet, Rollout, RolloutState, RolloutStep
from planner.records import JsonObject, Record
from planner.selectors.access import break_glass
from planner.selectors.access.rights import open_break_glass_of
from planner.selectors.rollouts import queries as rollout_state

MAX_REASON_CHARS = 4_000


class Passage:
    """What stood in the way of one transition, and the emergency that let its holder pass.

    Raises `Conflict` at the first obstacle unless the acting user has an open emergency on the fleet.
    """

    def __init__(self, acting_user: User | None, fleet: Fleet) -> None:
        self.emergency: BreakGlass | None = None
        if acting_user is not None:
            self.emergency = open_break_glass_of(acting_user, fleet)
        self._fleet = fleet
        self._passed: list[str] = []

    def not_frozen(self) -> None:
        """No freeze, of this fleet or of all."""
        if (freeze := rollout_state.freeze_of(self._fleet)) is not None:
            self.meet("frozen", f"{rollout_state.frozen_words(freeze)}; lift the freeze first", "frozen")

    def not_held(self, rollout: Rollout, *, but: tuple[str, ...] = ()) -> None:
        """Nothing holds the canary where it is, other than what is named in `but`."""
        held = [hold for hold in rollout_state.what_holds(rollout) if hold.code not in but]
        if held:
            reasons = "; ".join(hold.message for hold in held)
            self.meet("held", f"{rollout.plan} is held: {reasons}", *(hold.code for hold in held))

    def meet(self, code: str, message: str, *names: str) -> None:
        """An obstacle: `Conflict` with that code and message, or passed by those names in an emergency."""
        if self.emergency is None:
            raise Conflict(message, code=code)
        self._passed += names

    @property
    def marks(self) -> JsonObject:
        """For the audit event: nothing, or the emergency and what was passed by it."""
        if self.emergency is None or not self._passed:
            return {}
        return {"emergency": self.emergency.pk, "passed": self._passed}


def refuse_open_review(fleet: Fleet) -> None:
    """After an emergency another person looks at what was done, before the next canary."""
    if (waiting := break_glass.waiting_for_review(fleet)) is not None:
        raise Conflict(
            f"the emergency of {waiting.opened_by} on this fleet is over and nobody else has reviewed it yet; no "
            "canary starts before that",
            code="review-open",
        )


def refuse_ahead(fleet: Fleet) -> None:
    """A fleet has one rollout ahead at a time (a constraint of the table too)."""
    ahead = fleet.rollouts.filter(state__in=Rollout.AHEAD).select_related("plan").first()
    if ahead is None:
        return
    if ahead.state == Rollout.State.CANARY:
        raise Conflict(f"{ahead.plan} is in canary on this fleet; finish or abort it first", code="canary-running")
    raise Conflict(
        f"{ahead.plan} is scheduled on this fleet for {ahead.scheduled_for:%Y-%m-%d %H:%M} UTC; call that off first",
        code="scheduled",
    )


def needed_reason(reason: str) -> str:
    """The reason, which must say something.

    Raises
    ------
    Invalid
        When it is blank or too long.
    """
    reason = reason.strip()
    if not reason:
        raise Invalid("say why; it stands in the audit trail", field="reason")
    if len(reason) > MAX_REASON_CHARS:
        raise Invalid(f"{MAX_REASON_CHARS:,} characters at most", field="reason")
    return reason


def end(rollout: Rollout, state: RolloutState, reason: str) -> None:
    """End a locked rollout, refusing what its transitions do not allow."""
    if not RolloutState(rollout.state).may_become(state):
        raise Conflict(f"the rollout is {rollout.get_state_display()} already")
    rollout.state, rollout.ended_at, rollout.end_reason = state, timezone.now(), reason
    rollout.bump("state", "ended_at", "end_reason")


def enter_step(rollout: Rollout, acting_user: User | None, *fields: str) -> None:
    """Write down that a locked rollout took its weight now, together with the other fields that changed."""
    step = RolloutStep.objects.create(
        rollout=rollout, number=rollout.steps.count() + 1, weight=rollout.weight, entered_by=acting_user
    )
    rollout.step_started_at = step.entered_at
    rollout.bump("weight", "step_started_at", *fields)


def active_of(fleet: Fleet) -> Rollout:
    """The active rollout of a locked fleet, locked too."""
    return fleet.rollouts.select_for_update(no_key=True).get(state=Rollout.State.ACTIVE)


@dataclass(frozen=True)
class RolloutFacts(Record):
    """What an audit event records of a rollout: number of the plan, state, and its share of keys."""

    plan: int
    state: str
    weight: float


def audit_facts(rollout: Rollout) -> JsonObject:
    """The facts of a rollout as an audit event stores them."""
    return RolloutFacts(rollout.plan.number, rollout.state, rollout.weight).to_json()
