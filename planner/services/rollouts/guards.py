"""Guards and steps that the transitions of rollouts share."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import User
from django.utils import timezone

from planner.errors import Conflict, Invalid
from planner.models import Fleet, Rollout, RolloutState, RolloutStep
from planner.records import JsonObject, Record
from planner.selectors.access import break_glass
from planner.selectors.access.rights import open_break_glass_of
from planner.selectors.rollouts import queries as rollout_state

MAX_REASON_CHARS = 4_000


class Passage:
    """The guards of one transition, and the break-glass with which its holder passes them.

    Each guard raises `Conflict` unless the acting user has open break-glass on the fleet.
    """

    def __init__(self, acting_user: User | None, fleet: Fleet) -> None:
        self.break_glass = None if acting_user is None else open_break_glass_of(acting_user, fleet)
        self._fleet = fleet
        self._passed: list[str] = []

    def not_frozen(self) -> None:
        """Require no freeze of this fleet or of all."""
        if (freeze := rollout_state.freeze_of(self._fleet)) is not None:
            self.meet("frozen", f"{rollout_state.frozen_words(freeze)}; lift the freeze first", "frozen")

    def not_held(self, rollout: Rollout, *, but: tuple[str, ...] = ()) -> None:
        """Require no hold of the canary other than those named in `but`."""
        held = [hold for hold in rollout_state.what_holds(rollout) if hold.code not in but]
        if held:
            reasons = "; ".join(hold.message for hold in held)
            self.meet("held", f"{rollout.plan} is held: {reasons}", *(hold.code for hold in held))

    def meet(self, code: str, message: str, *names: str) -> None:
        """Refuse the transition, or with break-glass record the guards as passed.

        Parameters
        ----------
        code, message
            Of the refusal.
        *names
            Names of the guards.

        Raises
        ------
        Conflict
            Without open break-glass of the acting user.
        """
        if self.break_glass is None:
            raise Conflict(message, code=code)
        self._passed += names

    @property
    def marks(self) -> JsonObject:
        """Entries for the audit event: the break-glass and the guards that it passed; empty without any."""
        if self.break_glass is None or not self._passed:
            return {}
        return {"break_glass": self.break_glass.pk, "passed": self._passed}


def refuse_open_review(fleet: Fleet) -> None:
    """Refuse to start a canary while closed break-glass is not reviewed by another person."""
    if (waiting := break_glass.waiting_for_review(fleet)) is not None:
        raise Conflict(
            f"the break-glass of {waiting.opened_by} on this fleet is closed but not reviewed; no canary starts before "
            "another person reviews it",
            code="review-open",
        )


def refuse_ahead(fleet: Fleet) -> None:
    """Refuse a second scheduled or canary rollout of a fleet (a constraint of the table too)."""
    ahead = fleet.rollouts.filter(state__in=Rollout.AHEAD).select_related("plan").first()
    if ahead is None:
        return
    if ahead.state == Rollout.State.CANARY:
        raise Conflict(f"{ahead.plan} is in canary on this fleet; finish or abort it first", code="canary-running")
    raise Conflict(
        f"{ahead.plan} is scheduled on this fleet for {ahead.scheduled_for:%Y-%m-%d %H:%M} UTC; cancel that first",
        code="scheduled",
    )


def needed_reason(reason: str) -> str:
    """Return the reason without outer blanks.

    Raises
    ------
    Invalid
        When it is blank or too long.
    """
    reason = reason.strip()
    if not reason:
        raise Invalid("give a reason; the audit trail keeps it", field="reason")
    if len(reason) > MAX_REASON_CHARS:
        raise Invalid(f"at most {MAX_REASON_CHARS:,} characters", field="reason")
    return reason


def end(rollout: Rollout, state: RolloutState, reason: str) -> None:
    """End a locked rollout.

    Parameters
    ----------
    rollout, state
        The rollout, and its last state.
    reason
        Why it ends; stored as given.

    Raises
    ------
    Conflict
        When its state does not allow the transition.
    """
    if not RolloutState(rollout.state).may_become(state):
        raise Conflict(f"the rollout is {rollout.get_state_display()} already")
    rollout.state, rollout.ended_at, rollout.end_reason = state, timezone.now(), reason
    rollout.bump("state", "ended_at", "end_reason")


def enter_step(rollout: Rollout, acting_user: User | None, *fields: str) -> None:
    """Store that a locked rollout takes its weight now.

    Parameters
    ----------
    rollout
        The rollout with its new weight, a share of the keys from 0 to 1.
    acting_user
        The user who moved it; None for the console itself.
    *fields
        Other changed columns, stored with the weight.
    """
    step = RolloutStep.objects.create(
        rollout=rollout, number=rollout.steps.count() + 1, weight=rollout.weight, entered_by=acting_user
    )
    rollout.step_started_at = step.entered_at
    rollout.bump("weight", "step_started_at", *fields)


def active_of(fleet: Fleet) -> Rollout:
    """Return the active rollout of a locked fleet, locked too."""
    return fleet.rollouts.select_for_update(no_key=True).get(state=Rollout.State.ACTIVE)


@dataclass(frozen=True)
class RolloutFacts(Record):
    """Facts of a rollout in an audit event: number of the plan, state, and share of keys."""

    plan: int
    state: str
    weight: float


def audit_facts(rollout: Rollout) -> JsonObject:
    """Return the facts of a rollout as JSON for an audit event."""
    return RolloutFacts(rollout.plan.number, rollout.state, rollout.weight).to_json()
