"""A fixed cast and small real things for tests: everything is made by the services that make it in life."""

from __future__ import annotations

import datetime as dt
import io
import itertools
from typing import Any

from django.contrib.auth.models import Group, User
from django.utils import timezone

from planner.ingest import ImportedWorkload
from planner.models import (
    Calibration,
    DriftCheck,
    Fleet,
    GateEvaluation,
    Job,
    Plan,
    Replay,
    Rollout,
    RolloutAnalysis,
    TelemetryWindow,
    Workload,
)
from planner.services.calibrations import calibrations
from planner.services.fleets import fleets
from planner.services.gate import evaluations
from planner.services.jobs.jobs import claimed
from planner.services.plans import builds
from planner.services.plans import orders as plan_orders
from planner.services.replays import cells
from planner.services.replays import orders as replay_orders
from planner.services.reviews.approvals import approve_plan
from planner.services.reviews.submissions import submit_plan
from planner.services.rollouts.starts import start_rollout
from planner.services.rollouts.steps import advance_rollout
from planner.services.workloads import imports
from planner.simulation.synthetic import Lengths, source_rate_shape, synthetic_key_names, synthetic_trace
from planner.web.fleets.forms import PolicyForm
from tests import golden

PASSWORD = "correct horse battery staple"
KEYS = 400
DESTINATIONS = 4
# What four destinations of the 70B profile serve within the SLO, and Flat-LB only just.
TOTAL_RPS = 8.0
# Loads around it.
REPLAY: dict[str, Any] = {"loads_rps": [4.0, 8.0, 24.0], "seeds": [1, 2, 3], "requests": 2_000}

_numbers = itertools.count(1)


def make_user(name: str, group: str = "", *, superuser: bool = False) -> User:
    """An account with the shared password, in one group."""
    make = User.objects.create_superuser if superuser else User.objects.create_user
    user = make(name, email=f"{name}@example.test", password=PASSWORD)
    if group:
        user.groups.add(Group.objects.get(name=group))
    return user


class Cast:
    """Ada writes plans, Grace approves, Linus operates, Vera only looks, Root is administrator."""

    def __init__(self) -> None:
        if golden.inhabited():
            vars(self).update({user.username: user for user in User.objects.all()})
            return
        self.root = make_user("root", "admin", superuser=True)
        self.ada = make_user("ada", "planner")
        self.grace = make_user("grace", "approver")
        self.hopper = make_user("hopper", "approver")
        self.linus = make_user("linus", "operator")
        self.vera = make_user("vera", "viewer")


def make_fleet(cast: Cast, slug: str = "", **policy: Any) -> Fleet:
    """A fleet of four destinations, whose canaries take one step that is not watched for any time."""
    if slug == golden.SLUG and not policy and (there := Fleet.objects.filter(slug=slug).first()):
        return there  # from the golden database
    slug = slug or f"fleet-{next(_numbers)}"
    policy = {"canary_weights": [0.1], "canary_holds_s": [0.0], "canary_warmup_s": 0.0, **policy}
    return fleets.create_fleet(
        acting_user=cast.root,
        slug=slug,
        name=slug.title(),
        destinations=[(f"d{i}", f"http://127.0.0.1:{9100 + i}") for i in range(DESTINATIONS)],
        engine_profile="llama-3.3-70b-fp8-tp2-h100",
        **policy,
    )


def policy_form(**values: Any) -> dict[str, Any]:
    """What a browser sends of the form of a policy that nobody touched, with these values instead."""
    shown = {name: field.initial for name, field in PolicyForm.base_fields.items()}
    return {name: value for name, value in {**shown, **values}.items() if value not in (None, False)}


def make_workload(cast: Cast, fleet: Fleet, *, with_trace: bool = True, name: str = "") -> Workload:
    """A few hundred keys with the source's rate shape, and 2,000 requests to them."""
    rates = source_rate_shape(KEYS, total_rps=TOTAL_RPS)
    trace = (
        synthetic_trace(
            rates,
            requests=2_000,
            active_keys=200,
            load_rps=TOTAL_RPS,
            prefix_tokens=Lengths(6_000, 0.3, 512, 16_384),
            suffix_tokens=Lengths(100, 0.3, 8, 1_000),
            output_tokens=Lengths(40, 0.4, 1, 200),
            seed=3,
        )
        if with_trace
        else None
    )
    parsed = ImportedWorkload(
        format="generated",
        key_names=synthetic_key_names(KEYS),
        rates=rates,
        tenants=None,
        trace=trace,
        window_s=100.0,
        requests=len(trace) if trace else 0,
        rows=KEYS,
        notices=[],
        parameters={},
        source_name="generated",
        source_sha256="0" * 64,
        source_bytes=1,
    )
    return imports.store_workload(
        acting_user=cast.ada,
        fleet=fleet,
        parsed=parsed,
        name=name or f"workload-{next(_numbers)}",
        measured_at=timezone.now(),
    )


def import_rates(cast: Cast, fleet: Fleet, content: str, name: str = "") -> Workload:
    """A rates file, imported as anybody would."""
    name = name or f"rates-{next(_numbers)}"
    file = io.BytesIO(content.encode())
    return imports.import_workload(acting_user=cast.ada, fleet=fleet, file=file, file_name=f"{name}.csv", name=name)


def make_calibration(cast: Cast, fleet: Fleet, **figures: Any) -> Calibration:
    """Recorded as measured."""
    values: dict[str, Any] = {"q_cap": 8.0, "slots_measured": 60, "margin": 0.8, **figures}
    return calibrations.record_calibration(acting_user=cast.ada, fleet=fleet, **values)


def order_plan(cast: Cast, fleet: Fleet, **options: Any) -> tuple[Plan, Job]:
    """A plan that is ordered and not built yet."""
    workload = options.pop("workload", None) or fleet.workloads.first() or make_workload(cast, fleet)
    calibration = options.pop("calibration", None) or fleet.calibrations.first() or make_calibration(cast, fleet)
    return plan_orders.order_plan(
        acting_user=cast.ada, fleet=fleet, workload=workload, calibration=calibration, **options
    )


def build(job: Job) -> None:
    """Do in this process what a worker does with a build job."""
    with claimed(job.pk) as mine:
        assert mine is not None
        builds.build_plan(mine)


def built_plan(cast: Cast, fleet: Fleet, **options: Any) -> Plan:
    """A plan with its table."""
    plan, job = order_plan(cast, fleet, **options)
    build(job)
    return Plan.objects.get(pk=plan.pk)


def hear(fleet: Fleet) -> None:
    """A router of the fleet reported just now (nothing served), and the monitor runs; once a fleet."""
    if TelemetryWindow.objects.filter(fleet=fleet).exists():
        return
    flat, now = fleet.plans.get(kind=Plan.Kind.FLAT), timezone.now()
    TelemetryWindow.objects.create(
        fleet=fleet,
        plan=flat,
        arm="incumbent",
        source="factory",
        table_version=fleet.table_version,
        started_at=now - timezone.timedelta(seconds=10),
        ended_at=now,
        figures={},
    )
    DriftCheck.objects.create(fleet=fleet, plan=flat, verdict="within")


def run_replay(cast: Cast, plan: Plan, **options: Any) -> Replay:
    """Replay a built plan, every cell in this process; the checklist is evaluated at the end."""
    hear(plan.fleet)
    row, _job = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **{**REPLAY, **options})
    for cell in row.cells.all():
        cells.run_cell(cell.pk)
    return Replay.objects.get(pk=row.pk)


def replayed_plan(cast: Cast, fleet: Fleet, **options: Any) -> Plan:
    """A plan whose replay is finished and judged."""
    plan = built_plan(cast, fleet, **options)
    run_replay(cast, plan)
    return Plan.objects.get(pk=plan.pk)


def evaluation_of(plan: Plan) -> GateEvaluation:
    """The latest judgement of a plan."""
    return plan.gate_evaluations.latest("id")


def submitted_plan(cast: Cast, fleet: Fleet) -> Plan:
    """A plan in review, its checklist passed."""
    plan = replayed_plan(cast, fleet)
    return submit_plan(acting_user=cast.ada, plan=plan)


def fill_golden(state: str) -> None:
    """Make what the golden database of a state holds."""
    cast = Cast()
    fleet = make_fleet(cast, golden.SLUG)
    {"approved": approved_plan, "canary": canary, "active": active_plan}[state](cast, fleet)


def _is_golden(state: str, fleet: Fleet) -> bool:
    """Whether the fleet has the state from a golden database; its times are then as if it was made just now."""
    if not golden.take(state, fleet):
        return False
    now = timezone.now()
    TelemetryWindow.objects.filter(fleet=fleet).delete()
    DriftCheck.objects.filter(fleet=fleet).delete()
    hear(fleet)
    Rollout.objects.filter(fleet=fleet, state="canary").update(step_started_at=now)
    Rollout.objects.filter(fleet=fleet, state="active").update(activated_at=now)
    return True


def approved_plan(cast: Cast, fleet: Fleet) -> Plan:
    """A plan that Grace approved."""
    if _is_golden("approved", fleet):
        return Plan.objects.get(fleet=fleet, state="approved", kind="cacheroute")
    plan = submitted_plan(cast, fleet)
    approve_plan(acting_user=cast.grace, plan=plan, evidence_digest=evaluation_of(plan).evidence_digest, comment="fine")
    return Plan.objects.get(pk=plan.pk)


def judge_again(cast: Cast, plan: Plan) -> GateEvaluation:
    """Evaluate the checklist now."""
    return evaluations.evaluate_gate(acting_user=cast.ada, plan=plan)


def pass_step(
    rollout: Rollout, verdict: str = "pass", explanation: str = "p99 and errors are within bounds"
) -> Rollout:
    """The analysis of the step that a canary is in has come to this verdict.

    The row is written directly: steps of tests are milliseconds old, and the requests that a real judgement wants of
    both arms would be more load in that time than any plan was validated for. Telemetry is judged in
    tests/services/monitoring/test_canary_analysis.py and tests/integration/test_watched_canary.py.
    """
    RolloutAnalysis.objects.create(
        rollout=rollout, step=rollout.steps.count(), verdict=verdict, explanation=explanation, numbers={}
    )
    return Rollout.objects.get(pk=rollout.pk)


def watched(rollout: Rollout, seconds: float) -> Rollout:
    """The canary entered its present step so many seconds earlier."""
    earlier = timezone.now() - dt.timedelta(seconds=seconds)
    Rollout.objects.filter(pk=rollout.pk).update(step_started_at=earlier)
    return Rollout.objects.get(pk=rollout.pk)


def canary(cast: Cast, fleet: Fleet, plan: Plan | None = None) -> Rollout:
    """An approved plan in the first step of its canary, that Linus started."""
    if plan is None and _is_golden("canary", fleet):
        return Rollout.objects.get(fleet=fleet, state="canary")
    return start_rollout(acting_user=cast.linus, plan=plan or approved_plan(cast, fleet))


def activate(cast: Cast, rollout: Rollout) -> Rollout:
    """Take a canary through all its steps, each with an analysis that passes."""
    while rollout.state == Rollout.State.CANARY:
        rollout = advance_rollout(acting_user=cast.linus, rollout=pass_step(rollout))
    return rollout


def active_plan(cast: Cast, fleet: Fleet) -> Plan:
    """An approved plan that routes the fleet."""
    if _is_golden("active", fleet):
        return Rollout.objects.get(fleet=fleet, state="active").plan
    return activate(cast, canary(cast, fleet)).plan
