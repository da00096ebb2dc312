"""Whatever people, monitor and scheduler do in whichever order: what must always hold about rollouts holds.

Hypothesis draws interleavings of all transitions and of what makes them refuse. Each runs in a savepoint of one
console, whose plans were replayed and approved once.
"""

from __future__ import annotations

import collections
import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from planner.errors import Refused
from planner.models import (
    Approval,
    AuditEvent,
    BreakGlass,
    Fleet,
    Freeze,
    Plan,
    Publication,
    Rollout,
    RolloutStep,
    TelemetryWindow,
)
from planner.selectors.fleets.routing_tables import routing_table
from planner.selectors.rollouts.queries import freeze_of, latest_analysis, what_holds
from planner.services.fleets import fleets
from planner.services.reviews.approvals import approve_plan, withdraw_approval
from planner.services.reviews.submissions import retire_plan, submit_plan
from planner.services.rollouts import fallback, freezes, rollback
from planner.services.rollouts.freezes import lift_freeze
from planner.services.rollouts.starts import fire_schedules, reschedule_rollout, start_rollout
from planner.services.rollouts.steps import (
    abort_rollout,
    advance_rollout,
    pause_rollout,
    promote_rollout,
    resume_rollout,
)
from tests import factories as make
from tests import scale

pytestmark = pytest.mark.django_db

INTERLEAVINGS, STEPS = scale.pick(200, 1_000), 12
LIVE, AHEAD = ("canary", "active"), ("scheduled", "canary")
# What a freeze never stops.
OFF_TRAFFIC = ("abort", "fall back", "monitor falls back")

PLANS = st.sampled_from(["third", "third", "third", "first", "second", "unapproved", "flat"])
MINUTES = st.integers(-5, 180)


class Machine(RuleBasedStateMachine):
    world: SimpleNamespace
    done: collections.Counter[str]  # of every transition, how often it happened

    def __init__(self) -> None:
        super().__init__()
        self.savepoint = transaction.savepoint()
        self.cast = self.world.cast
        self.changed, self.last = True, None
        self.done["interleavings"] += 1

    def teardown(self) -> None:
        transaction.set_rollback(False)
        transaction.savepoint_rollback(self.savepoint)

    # --- How it is looked at ------------------------------------------------------------------------------
    @property
    def fleet(self) -> Fleet:
        return Fleet.objects.get(pk=self.world.fleet.pk)

    def plan(self, name: str) -> Plan:
        return Plan.objects.get(pk=self.world.plans[name].pk)

    @property
    def ahead(self) -> Rollout | None:
        return Rollout.objects.filter(fleet=self.world.fleet, state__in=AHEAD).first()

    @property
    def target(self) -> Rollout:
        """The rollout that a person would have on their screen: the one ahead, else the newest."""
        return self.ahead or Rollout.objects.filter(fleet=self.world.fleet).latest("id")

    def seen(self) -> SimpleNamespace:
        """Everything that a transition may change: four queries."""
        rows = Rollout.objects.filter(fleet=self.world.fleet).order_by("id")
        rows = list(rows.values_list("pk", "state", "weight", "plan", "version", "paused_at", "scheduled_for"))
        return SimpleNamespace(
            version=self.fleet.table_version,
            arms=sorted((plan, weight, state) for _, state, weight, plan, *_ in rows if state in LIVE),
            rows=rows,
            events=AuditEvent.objects.count(),
            steps=RolloutStep.objects.filter(rollout__fleet=self.world.fleet).count(),
        )

    @property
    def emergency(self) -> bool:
        return BreakGlass.objects.filter(opened_by=self.cast.linus).exists()

    def attempt(self, name: str, call: Any, **values: Any) -> Any:
        """Do it as somebody does, and hold what came of it against what it may do."""
        before, refused, result = self.last or self.seen(), "", None
        try:
            result = call(**values)
        except Refused as refusal:
            refused = refusal.code
        self.last = after = self.seen()
        if refused:
            assert vars(after) == vars(before), f"{name} was refused ({refused}) and changed something"
            self.done[f"{name} refused: {refused}"] += 1
            return None
        self.done[name] += 1
        self.changed = True
        if after.rows != before.rows:
            assert after.events > before.events, f"{name} left no trace"
        assert after.version - before.version == (after.arms != before.arms), f"{name}: version and table disagree"
        if after.arms != before.arms and name not in OFF_TRAFFIC:
            assert self.emergency or freeze_of(self.fleet) is None, f"{name} moved a frozen fleet"
        return result

    # --- Where an interleaving begins ---------------------------------------------------------------------
    @initialize(where=st.sampled_from(["flat", "scheduled", "first step", "second step", "active", "replaced"]))
    def begin(self, where: str) -> None:
        cast, plan = self.cast, self.plan("third")
        TelemetryWindow.objects.filter(fleet=self.world.fleet).delete()
        make.hear(self.fleet)  # routers report and the monitor runs, minutes after the world was made too
        if where == "scheduled":
            self.schedule("third", 60)
        elif where == "replaced":
            rollback.roll_back(acting_user=cast.linus, fleet=self.fleet, plan=self.plan("second"), reason="to begin")
        elif where != "flat":
            rollout = make.canary(cast, self.fleet, plan)
            for _ in range(["first step", "second step", "active"].index(where)):
                advance_rollout(acting_user=cast.linus, rollout=make.pass_step(make.watched(rollout, 90)))
        self.changed, self.last = True, None

    # --- What people do -----------------------------------------------------------------------------------
    @rule(plan=PLANS)
    def start(self, plan: str) -> None:
        self.attempt("start", start_rollout, acting_user=self.cast.linus, plan=self.plan(plan))

    @rule(plan=PLANS, minutes=MINUTES)
    def schedule(self, plan: str, minutes: int) -> None:
        at = timezone.now() + dt.timedelta(minutes=minutes)
        self.attempt("schedule", start_rollout, acting_user=self.cast.linus, plan=self.plan(plan),
                     scheduled_for=at)  # fmt: skip

    @rule(minutes=MINUTES)
    def reschedule(self, minutes: int) -> None:
        at = timezone.now() + dt.timedelta(minutes=minutes)
        self.attempt("reschedule", reschedule_rollout, acting_user=self.cast.grace, rollout=self.target,
                     scheduled_for=at)  # fmt: skip

    @rule(minutes=st.integers(0, 240))
    def the_scheduler_fires(self, minutes: int) -> None:
        now, ahead = timezone.now() + dt.timedelta(minutes=minutes), self.ahead
        due = ahead is not None and ahead.state == "scheduled" and ahead.scheduled_for <= now
        fired = self.attempt("fire", fire_schedules, now=now)
        assert [row.pk for row in fired] == ([ahead.pk] if due else [])
        assert fire_schedules(now=now) == []  # never twice
        for row in fired:
            self.done[f"fired: {row.state}"] += 1
            assert row.plan.state != Plan.State.RETIRED or row.state == "aborted"

    @rule(verdict=st.sampled_from(["pass", "pass", "pass", "fail", "inconclusive", "missing", "error"]))
    def the_step_is_analysed(self, verdict: str) -> None:
        if self.target.state == "canary":
            make.pass_step(self.target, verdict)

    @rule()
    def time_passes(self) -> None:
        if self.target.state == "canary":
            make.watched(self.target, 90)

    @rule()
    def a_step_goes_well(self) -> None:
        if self.target.state == "canary":
            make.pass_step(make.watched(self.target, 90))
            self.advance("monitor")

    @rule(by=st.sampled_from(["linus", "grace", "ada", "monitor"]))
    def advance(self, by: str) -> None:
        target, analysis = self.target, latest_analysis(self.target)
        holds, emergency = what_holds(target), self.emergency
        user = None if by == "monitor" else getattr(self.cast, by)
        row = self.attempt("advance", advance_rollout, acting_user=user, rollout=target)
        if row is not None:
            assert by != "ada"
            assert (by == "linus" and emergency) or (not holds and analysis is not None and analysis.verdict == "pass")
            assert row.weight > target.weight
            self.done[f"advanced to {row.state}"] += 1

    @rule(passes=st.booleans())
    def promote(self, passes: bool) -> None:
        if passes and self.target.state == "canary":
            make.pass_step(self.target)
        target, analysis = self.target, latest_analysis(self.target)
        emergency = self.emergency
        row = self.attempt("promote", promote_rollout, acting_user=self.cast.linus, rollout=target, reason="x")
        if row is not None:
            assert emergency or (analysis is not None and analysis.verdict == "pass" and target.paused_at is None)
            assert row.state == "active"

    @rule()
    def pause(self) -> None:
        self.attempt("pause", pause_rollout, acting_user=self.cast.grace, rollout=self.target)

    @rule()
    def resume(self) -> None:
        self.attempt("resume", resume_rollout, acting_user=self.cast.linus, rollout=self.target)

    @rule(by=st.sampled_from(["linus", "monitor"]))
    def abort(self, by: str) -> None:
        target, frozen = self.target, freeze_of(self.fleet)
        user = None if by == "monitor" else self.cast.linus
        row = self.attempt("abort", abort_rollout, acting_user=user, rollout=target, reason="p99 up")
        # In whichever step, and frozen or not.
        assert (row is not None) == (target.state in AHEAD), (target.state, frozen)

    @rule(plan=PLANS)
    def roll_back(self, plan: str) -> None:
        row = self.attempt("roll back", rollback.roll_back, acting_user=self.cast.grace, fleet=self.fleet,
                           plan=self.plan(plan), reason="p99 up")  # fmt: skip
        if row is not None:
            assert (row.state, row.plan_id, self.ahead) == ("active", self.world.plans[plan].pk, None)

    @rule(by=st.sampled_from(["linus", "linus", "monitor"]))
    def fall_back(self, by: str) -> None:
        user = None if by == "monitor" else self.cast.linus
        name = "fall back" if user else "monitor falls back"
        row = self.attempt(name, fallback.fall_back, acting_user=user, fleet=self.fleet, reason="drill\0")
        assert (row.state, row.plan.kind, self.ahead) == ("active", Plan.Kind.FLAT, None)  # never refused

    @rule(everywhere=st.booleans())
    def freeze(self, everywhere: bool) -> None:
        fleet = None if everywhere else self.fleet
        self.attempt("freeze", freezes.freeze, acting_user=self.cast.root, fleet=fleet, reason="holidays")

    @rule()
    def lift(self) -> None:
        for freeze in Freeze.objects.filter(lifted_at=None):
            self.attempt("lift", lift_freeze, acting_user=self.cast.root, freeze=freeze)

    @rule(value=st.sampled_from([1.5, 1.5, 1.45]))
    def change_policy(self, value: float) -> None:
        if self.fleet.max_imbalance != value:
            fleets.change_policy(acting_user=self.cast.root, fleet=self.fleet, max_imbalance=value)
            self.last = None

    @rule(plan=st.sampled_from(["first", "second", "third"]))
    def approve_again(self, plan: str) -> None:
        try:
            evaluation = make.judge_again(self.cast, self.plan(plan))
            submit_plan(acting_user=self.cast.ada, plan=self.plan(plan))
            approve_plan(acting_user=self.cast.grace, plan=self.plan(plan), evidence_digest=evaluation.evidence_digest)
            self.changed, self.last = True, None
            self.done["approve again"] += 1
        except Refused as refusal:
            self.last = None  # it may have been judged or submitted before that
            self.done[f"approve again refused: {refusal.code}"] += 1

    @rule(plan=st.sampled_from(["first", "second"]))
    def withdraw_an_approval(self, plan: str) -> None:
        approval = self.plan(plan).approvals.filter(withdrawn_at=None, decision="approve").order_by("-id").first()
        if approval is not None:
            self.changed, self.last = True, None
            withdraw_approval(acting_user=approval.approver, approval=approval)

    @rule()
    def retire(self) -> None:
        self.attempt("retire", retire_plan, acting_user=self.cast.ada, plan=self.plan("first"))

    @rule()
    def the_glass_is_broken_or_mended(self) -> None:
        """Linus opens an emergency, or another reviews what he did."""
        opened = BreakGlass.objects.filter(opened_by=self.cast.linus)
        if opened.exists():
            opened.delete()
        else:
            until = timezone.now() + dt.timedelta(hours=1)
            BreakGlass.objects.create(fleet=self.fleet, opened_by=self.cast.linus, reason="slow", expires_at=until)

    # --- What always holds --------------------------------------------------------------------------------
    @invariant()
    def what_must_always_hold(self) -> None:
        if not self.changed:
            return
        self.changed = False
        rows = list(Rollout.objects.filter(fleet=self.world.fleet).select_related("plan").prefetch_related("steps"))
        self.one_is_active_and_at_most_one_ahead([row.state for row in rows])
        self.the_published_table_is_what_is_live({row.state: row for row in rows if row.state in LIVE})
        for row in rows:
            assert (row.ended_at is not None) == (row.state in ("superseded", "rolled_back", "aborted"))
            assert (row.step_started_at is None) == (not row.steps.all())
            assert row.paused_at is None or row.state in ("canary", "aborted")
            if row.state in LIVE and row.plan.kind != Plan.Kind.FLAT:
                self.another_person_approved(row)

    def one_is_active_and_at_most_one_ahead(self, states: list[str]) -> None:
        assert states.count("active") == 1
        assert states.count("scheduled") + states.count("canary") <= 1

    def the_published_table_is_what_is_live(self, live: dict[str, Rollout]) -> None:
        fleet = self.fleet
        arms = [(arm["name"], arm["plan"], arm["weight"]) for arm in routing_table(fleet)["arms"]]
        share = live["canary"].weight if "canary" in live else 0.0
        expected = [("incumbent", live["active"].plan.number, round(1 - share, 9))]
        if "canary" in live:
            expected.append(("canary", live["canary"].plan.number, share))
        assert arms == expected
        assert sum(weight for _, _, weight in arms) == pytest.approx(1.0, abs=1e-12)
        kept = list(Publication.objects.filter(fleet=fleet).order_by("version"))
        assert [row.version for row in kept] == list(range(1, fleet.table_version + 1))
        assert [(arm["name"], arm["number"], arm["weight"]) for arm in kept[-1].arms] == expected

    def another_person_approved(self, row: Rollout) -> None:
        given = Approval.objects.filter(plan=row.plan, decision="approve", evidence_digest=row.evidence_digest)
        assert given.exclude(approver__in=[row.plan.author_id, row.plan.submitted_by_id]).exists()
        assert row.plan.state not in (Plan.State.RETIRED, Plan.State.REJECTED)


@pytest.fixture
def world(cast):
    """Two plans that were active before, a third, all approved; one in review; Flat-LB is live."""
    fleet = make.make_fleet(cast, "machine", canary_weights=[0.1, 0.5], canary_holds_s=[60.0], cool_down_s=0.0)
    plans = {"flat": fleet.plans.get(kind="flat")}
    for name in ("first", "second"):
        plans[name] = make.approved_plan(cast, fleet)
        rollout = make.canary(cast, fleet, plans[name])
        promote_rollout(acting_user=cast.linus, rollout=make.pass_step(rollout), reason="to begin with")
    fallback.fall_back(acting_user=cast.linus, fleet=fleet)
    plans["third"] = make.approved_plan(cast, fleet)
    plans["unapproved"] = make.submitted_plan(cast, fleet)
    return SimpleNamespace(cast=cast, fleet=fleet, plans=plans)


def test_a_thousand_interleavings(world):
    machine = type("TheMachine", (Machine,), {"world": world, "done": collections.Counter()})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=INTERLEAVINGS,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    done = machine.done
    assert done["interleavings"] >= INTERLEAVINGS
    # It was no walk past closed doors: many kinds of moves were made, and refused for many reasons. Which is chance.
    happened = {name for name, count in done.items() if count and "refused" not in name}
    refused = {name.partition("refused: ")[2] for name in done if "refused" in name}
    assert len(happened) >= 12, sorted(happened)
    assert len(refused) >= 5, sorted(refused)
    assert sum(done.values()) >= 5 * INTERLEAVINGS
    if INTERLEAVINGS >= 1_000:
        assert happened >= {"start", "advance", "promote", "abort", "roll back", "fall back", "fired: canary", "freeze"}
        assert refused >= {"held", "frozen", "not-approved", "evidence-stale", "canary-running", "scheduled", "active"}
