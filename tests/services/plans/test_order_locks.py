"""Orders and transitions read large files, and nobody waits for them who must not."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from django.core.files.storage import FileSystemStorage
from django.db import connection, transaction
from django.utils import timezone

from planner import artifacts
from planner.errors import Busy
from planner.models import Plan, Rollout
from planner.selectors.rollouts import blast_radius
from planner.services.base.locking import lock
from planner.services.gate import evaluations, preload
from planner.services.gate.preload import Preloaded, with_preloaded
from planner.services.reviews.approvals import approve_plan
from planner.services.reviews.submissions import submit_plan
from planner.services.rollouts.fallback import fall_back
from planner.services.rollouts.rollback import roll_back
from planner.services.rollouts.starts import fire_schedules, start_rollout
from planner.services.rollouts.steps import advance_rollout, promote_rollout
from tests import factories as make
from tests.speed import lateness

SECONDS = 240


class HeldStorage(FileSystemStorage):
    """A folder whose files open when the test allows it."""

    opening = threading.Event()
    go_on = threading.Event()
    opened = 0

    def open(self, name, mode="rb"):
        type(self).opened += 1
        self.opening.set()
        assert self.go_on.wait(SECONDS)
        return super().open(name, mode)


@pytest.fixture
def held(settings):
    """Hand it to the settings when the files are there."""
    HeldStorage.opening.clear()
    HeldStorage.go_on.clear()
    HeldStorage.opened = 0

    def hold():
        kept = settings.STORAGES["default"]["OPTIONS"]
        backend = f"{HeldStorage.__module__}.{HeldStorage.__qualname__}"
        settings.STORAGES = {**settings.STORAGES, "default": {"BACKEND": backend, "OPTIONS": kept}}
        return HeldStorage

    yield hold
    HeldStorage.go_on.set()


def known(cast, fleet):
    return make.import_rates(cast, fleet, "key,rate,tenant,prefix_tokens\na,5,acme,60\nb,4,bolt,50\n")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "options", [{"tokens_per_destination": 90}, {"tenant_quota": {"acme": 1}}], ids=["tokens", "tenants"]
)
def test_falling_back_does_not_wait_for_the_files_that_an_order_reads(cast, fleet, held, options):
    workload, calibration = known(cast, fleet), make.make_calibration(cast, fleet)
    storage = held()

    def order():
        try:
            make.order_plan(cast, fleet, workload=workload, calibration=calibration, **options)
        finally:
            connection.close()

    thread = threading.Thread(target=order)
    thread.start()
    try:
        assert storage.opening.wait(SECONDS)
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '10s'")
        assert fall_back(acting_user=cast.linus, fleet=fleet).plan.kind == Plan.Kind.FLAT
        assert not storage.go_on.is_set()
    finally:
        storage.go_on.set()
        thread.join()
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")
    assert fleet.plans.filter(kind=Plan.Kind.CACHEROUTE).count() == 1


@pytest.mark.django_db
def test_an_order_and_a_build_read_the_rates_once_each(cast, fleet, held):
    workload, calibration = known(cast, fleet), make.make_calibration(cast, fleet)
    options = {"tokens_per_destination": 90, "tenant_quota": {"acme": 1}, "tenant_floor": {"bolt": 1}}
    storage = held()
    storage.go_on.set()
    plan, job = make.order_plan(cast, fleet, workload=workload, calibration=calibration, **options)
    assert storage.opened == 1
    make.build(job)
    assert storage.opened == 2
    plan.refresh_from_db()
    assert len(artifacts.load_table(plan.table)[1]) == plan.summary["admitted"]


# --- transitions ------------------------------------------------------------------------------------------------
def starts(w):
    w.plan = make.approved_plan(w.cast, w.fleet)
    return lambda: start_rollout(acting_user=w.cast.linus, plan=w.plan)


def advances(w):
    rollout = make.pass_step(make.canary(w.cast, w.fleet))
    w.plan = rollout.plan
    return lambda: advance_rollout(acting_user=w.cast.linus, rollout=rollout)


def the_monitor_advances(w):
    rollout = make.pass_step(make.canary(w.cast, w.fleet))
    w.plan = rollout.plan
    return lambda: advance_rollout(acting_user=None, rollout=rollout)


def promotes(w):
    rollout = make.pass_step(make.canary(w.cast, w.fleet))
    w.plan = rollout.plan
    return lambda: promote_rollout(acting_user=w.cast.linus, rollout=rollout, reason="the fix cannot wait")


def a_schedule_fires(w):
    w.plan, at = make.approved_plan(w.cast, w.fleet), timezone.now() + timezone.timedelta(minutes=1)
    start_rollout(acting_user=w.cast.linus, plan=w.plan, scheduled_for=at)
    return lambda: fire_schedules(now=at)


def rolls_back(w):
    w.plan = make.active_plan(w.cast, w.fleet)
    make.activate(w.cast, make.canary(w.cast, w.fleet))
    return lambda: roll_back(acting_user=w.cast.linus, fleet=w.fleet, plan=w.plan, reason="p99 up")


def submits(w):
    w.plan = make.replayed_plan(w.cast, w.fleet)
    return lambda: submit_plan(acting_user=w.cast.ada, plan=w.plan)


def approves(w):
    w.plan = make.submitted_plan(w.cast, w.fleet)
    seen = make.evaluation_of(w.plan).evidence_digest
    return lambda: approve_plan(acting_user=w.cast.grace, plan=w.plan, evidence_digest=seen)


def evaluates(w):
    w.plan = make.replayed_plan(w.cast, w.fleet)
    return lambda: evaluations.evaluate_gate(acting_user=w.cast.ada, plan=w.plan)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "begin",
    [starts, advances, the_monitor_advances, promotes, a_schedule_fires, rolls_back, submits, approves, evaluates],
)
def test_falling_back_waits_for_no_storage_whatever_else_is_under_way(cast, fleet, held, begin):
    w = SimpleNamespace(cast=cast, fleet=fleet)
    act = begin(w)
    blast_radius._between.cache_clear()  # as in a process that has not read these tables yet
    came = []
    storage = held()

    def run():
        try:
            came.append(act())
        except Exception as refusal:  # noqa: BLE001 - what came of it does not matter here
            came.append(refusal)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert storage.opening.wait(SECONDS)
        fleet.refresh_from_db()
        version, began = fleet.table_version, time.monotonic()
        routed = Rollout.objects.filter(fleet=fleet, state__in=["active", "canary"]).exclude(plan__kind="flat").exists()
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '10s'")
        assert fall_back(acting_user=cast.linus, fleet=fleet).plan.kind == Plan.Kind.FLAT
        # Nor is the plan locked: a rollout that waits for it holds the fleet's lock.
        with transaction.atomic():
            lock(Plan, w.plan.pk)
        assert time.monotonic() - began < lateness()
        fleet.refresh_from_db()
        assert fleet.table_version == version + routed
        assert not storage.go_on.is_set()
        assert not came
    finally:
        storage.go_on.set()
        thread.join()
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")
    assert came
    assert not isinstance(came[0], Busy)
    # What was live went while it read: it looked again, and no move was made on what was true before.
    assert fleet.rollouts.filter(state="active").count() == 1


@pytest.mark.django_db
def test_what_went_live_while_it_was_read_is_read_before_anything_moves(cast, fleet):
    """The first look is of a fleet on Flat-LB, and then another plan is live."""
    live, plan = make.active_plan(cast, fleet), make.replayed_plan(cast, fleet)
    looks = []

    def look(found):
        seen = preload.read(found)
        if not looks:  # what was read is of before `live` went live
            seen = Preloaded(seen.tables, {})
        looks.append(seen)
        return seen

    evaluation = with_preloaded(
        plan.pk, lambda seen: evaluations.judge_plan(acting_user=cast.ada, plan=plan, stored=seen), reader=look
    )
    assert len(looks) == 2
    assert evaluation.evidence["blast_radius"]["against"] == live.number


@pytest.mark.django_db
def test_a_fleet_that_changes_faster_than_it_is_read_is_refused_with_the_reason(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    before = plan.gate_evaluations.count()
    with pytest.raises(Busy):
        with_preloaded(
            plan.pk,
            lambda seen: evaluations.judge_plan(acting_user=cast.ada, plan=plan, stored=seen),
            reader=preload.read_table,  # never of what is live
        )
    assert plan.gate_evaluations.count() == before
