"""Rules that the database enforces for every client."""

import math

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.utils import InternalError

from planner import artifacts
from planner.errors import ArtifactLost
from planner.models import Artifact, AuditEvent, GateItem, Job, Plan, Rollout
from planner.models.fleet import MAX_WEIGHT, MIN_WEIGHT
from planner.services.fleets import destination_rules
from tests import factories as make

pytestmark = pytest.mark.django_db


def refused(match=None):
    return pytest.raises((IntegrityError, InternalError, DatabaseError), match=match)


def test_audit_events_cannot_be_changed_deleted_or_truncated(cast, fleet):
    event = AuditEvent.objects.latest("id")
    with refused("no_update|Cannot update"), transaction.atomic():
        AuditEvent.objects.filter(pk=event.pk).update(actor_name="somebody else")
    with refused("no_delete|Cannot delete"), transaction.atomic():
        AuditEvent.objects.filter(pk=event.pk).delete()
    with refused("append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # else the pending checks of this test refuse it first
        cursor.execute("TRUNCATE planner_auditevent CASCADE")
    with refused("Cannot update"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE planner_auditevent SET reason = 'x'")
    assert AuditEvent.objects.filter(pk=event.pk, actor_name=event.actor_name).exists()


def test_results_cannot_be_edited(cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    for row, change in [
        (plan.workload, {"name": "other"}),
        (plan.calibration, {"q_cap": 1.0}),
        (plan.table, {"kind": "rates"}),
        (make.evaluation_of(plan), {"passed": False}),
        (GateItem.objects.first(), {"verdict": "fail"}),
    ]:
        with refused("Cannot update"), transaction.atomic():
            type(row).objects.filter(pk=row.pk).update(**change)


@pytest.mark.parametrize(
    ("model", "change", "constraint"),
    [
        (Plan, {"state": "rejected"}, "plan_flat_is_always_approved"),
        (Rollout, {"weight": 1.5}, "rollout_weight_a_share|rollout_active_is_whole"),
        (Rollout, {"weight": 0.5}, "rollout_active_is_whole"),
        (Rollout, {"state": "superseded"}, "rollout_ended_iff_over"),
    ],
)
def test_states_that_make_no_sense_are_refused(fleet, model, change, constraint):
    with refused(constraint), transaction.atomic():
        model.objects.update(**change)


def test_a_fleet_has_one_flat_plan_and_one_active_rollout(fleet):
    with refused("plan_one_flat_a_fleet"), transaction.atomic():
        Plan.objects.create(fleet=fleet, number=99, kind="flat", state="approved")
    flat = fleet.plans.get()
    with refused("rollout_one_active_a_fleet"), transaction.atomic():
        Rollout.objects.create(fleet=fleet, plan=flat, state="active", weight=1)


def test_a_built_plan_needs_a_table(cast, fleet):
    plan, _ = make.order_plan(cast, fleet)
    with refused("plan_built_has_table"), transaction.atomic():
        Plan.objects.filter(pk=plan.pk).update(state="built")


def test_a_subject_has_one_open_job(cast, fleet):
    _, job = make.order_plan(cast, fleet)
    with refused("job_one_open_a_subject"), transaction.atomic():
        Job.objects.create(fleet=fleet, kind=job.kind, subject_id=job.subject_id, created_by=cast.ada)


@pytest.mark.parametrize(
    "change", [{"summary": {}}, {"inputs_digest": "0" * 64}, {"code_version": "another"}, {"parameters": {}}]
)
def test_what_a_built_plan_says_of_its_table_stays(cast, fleet, change):
    plan = make.built_plan(cast, fleet)
    with refused("Cannot update"), transaction.atomic():
        Plan.objects.filter(pk=plan.pk).update(**change)
    waiting, _ = make.order_plan(cast, fleet)
    assert Plan.objects.filter(pk=waiting.pk).update(**change) == 1


@pytest.mark.parametrize("weight", [0.0, 0.0099, 100.1, math.inf, -math.inf, math.nan])
def test_a_weight_is_a_number_from_a_hundredth_to_a_hundred(fleet, weight):
    with refused("destination_weight_in_range"), transaction.atomic():
        fleet.destinations.filter(index=0).update(weight=weight)


def test_the_bounds_of_a_weight_are_weights_and_those_of_the_services(fleet):
    assert (MIN_WEIGHT, MAX_WEIGHT) == (destination_rules.MIN_WEIGHT, destination_rules.MAX_WEIGHT)
    for weight in (MIN_WEIGHT, MAX_WEIGHT):
        assert fleet.destinations.filter(index=0).update(weight=weight) == 1


def test_a_job_is_of_a_known_kind(cast, fleet):
    _, job = make.order_plan(cast, fleet)
    with refused("job_kind_known"), transaction.atomic():
        Job.objects.filter(pk=job.pk).update(kind="lottery")


def test_quorum_is_at_least_one(fleet):
    with refused("fleet_quorum_at_least_one"), transaction.atomic():
        type(fleet).objects.update(min_approvals=0)


def test_an_artifact_is_named_by_a_digest():
    with refused("artifact_digest_is_sha256"), transaction.atomic():
        Artifact.objects.create(digest="../../etc/passwd".ljust(64, "x"), kind="rates", size_bytes=1)


def test_an_artifact_that_was_altered_in_storage_is_not_read(cast, fleet):
    from django.core.files.storage import default_storage

    workload = make.make_workload(cast, fleet)
    path = default_storage.path(workload.rates.path)
    with open(path, "r+b") as file:
        file.seek(10)
        file.write(b"\xff\xff")
    try:
        with pytest.raises(ArtifactLost, match="altered"):
            artifacts.load_rates(workload.rates)
    finally:
        default_storage.delete(workload.rates.path)
