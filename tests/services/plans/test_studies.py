"""Studies of plans: ordered, run, cancelled, delivered twice, and never edited."""

import json

import pytest
from django.db import DatabaseError, IntegrityError, transaction

from planner import artifacts
from planner.errors import Conflict, Invalid, NotAllowed
from planner.models import AuditEvent, Job, Study
from planner.routing import build_table
from planner.routing.sensitivity import FACTORS, HEAD_SHARES, raise_head, sensitivity
from planner.selectors.fleets.home_page import recent_jobs
from planner.services.fleets.destinations import change_destination
from planner.services.jobs import jobs, queue
from planner.services.jobs.cancellation import cancel_job
from planner.services.plans import studies
from planner.tasks import run_job
from tests import factories as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def plan(cast, fleet):
    return make.built_plan(cast, fleet)


def studied(cast, plan) -> Study:
    job = studies.order_study(acting_user=cast.ada, plan=plan)
    run_job(job.pk)
    return Study.objects.get(pk=Job.objects.get(pk=job.pk).result["study"])


def test_a_study_holds_the_plans_that_other_inputs_would_give(cast, plan):
    study = studied(cast, plan)
    _, rates = artifacts.load_rates(plan.workload.rates)
    rows = study.results["settings"]
    assert len(rows) == len(HEAD_SHARES) * len(FACTORS) ** 2
    expected = sensitivity(rates, destinations=4, q_cap=8.0, slots=48 * 4)
    assert [row["imbalance"] for row in rows] == [setting.imbalance for setting in expected]
    row = next(r for r in rows if (r["head_share"], r["w_factor"], r["q_cap_factor"]) == (0.25, 0.75, 1.25))
    table = build_table(raise_head(rates, 0.25)[0], destinations=4, q_cap=10.0, slots=144)
    assert (row["admitted"], row["slots_used"]) == (len(table.admitted), table.slots_used)
    assert row["worst_loss"] == table.worst_loss
    assert study.parameters == {"factors": list(FACTORS), "head_shares": list(HEAD_SHARES)}
    assert study.code_version == plan.code_version
    assert study.created_by == cast.ada


def test_the_plans_own_options_are_used(cast, fleet):
    csv = "key,rate,tenant,prefix_tokens\na,5,acme,60\nb,4,acme,50\nc,3,bolt,40\nd,2,bolt,70\n"
    workload = make.import_rates(cast, fleet, csv)
    options = {
        "admission": "density", "balance_target": 1.5, "slots_per_destination": 4, "tokens_per_destination": 90,
        "tenant_quota": {"acme": 1},
    }  # fmt: skip
    plan = make.built_plan(cast, fleet, workload=workload, **options)
    rows = studied(cast, plan).results["settings"]
    base = next(r for r in rows if (r["head_share"], r["w_factor"], r["q_cap_factor"]) == (None, 1.0, 1.0))
    assert base["admitted_share"] == pytest.approx(plan.summary["admitted_share"])
    assert base["imbalance"] == plan.summary["imbalance"]
    assert base["slots_used"] == plan.summary["slots_used"] < 16


def test_the_result_is_json_without_nan_even_where_nothing_survives_a_loss(cast, fleet):
    for destination in fleet.destinations.exclude(index=0):
        change_destination(acting_user=cast.linus, destination=destination, state="draining")
    study = studied(cast, make.built_plan(cast, fleet))
    assert {row["worst_loss"] for row in study.results["settings"]} == {None}
    json.dumps(study.results, allow_nan=False)


def test_equal_inputs_have_one_digest_and_other_options_another(cast, fleet, plan):
    one, two = studied(cast, plan), studied(cast, plan)
    assert one.inputs_digest == two.inputs_digest
    assert one.results["settings"] == two.results["settings"]
    other = studied(cast, make.built_plan(cast, fleet, slots_per_destination=3))
    assert other.inputs_digest != one.inputs_digest


def test_a_study_that_is_delivered_twice_is_done_once(cast, plan):
    job = studies.order_study(acting_user=cast.ada, plan=plan)
    run_job(job.pk)
    run_job(job.pk)
    assert Study.objects.count() == 1
    assert AuditEvent.objects.filter(action="study.finished").count() == 1
    assert Job.objects.get(pk=job.pk).attempt == 1


def test_a_study_that_was_cancelled_or_taken_over_meanwhile_stores_nothing(cast, plan):
    job = studies.order_study(acting_user=cast.ada, plan=plan)
    with jobs.claimed(job.pk) as mine:
        cancel_job(acting_user=cast.ada, job=job)
        studies.run_study(mine)
    assert Job.objects.get(pk=job.pk).state == Job.State.CANCELLED
    job = studies.order_study(acting_user=cast.ada, plan=plan)
    with jobs.claimed(job.pk) as mine:
        Job.objects.filter(pk=job.pk).update(attempt=2)
        studies.run_study(mine)
        studies.study_failed(mine, message="not ours", crashed=True)
    assert Job.objects.get(pk=job.pk).state == Job.State.RUNNING
    assert not Study.objects.exists()


def test_progress_counts_the_plans_that_are_done(cast, plan, monkeypatch):
    seen = []
    told = jobs.progress
    monkeypatch.setattr(jobs, "progress", lambda *args: seen.append(args[1:]) or told(*args))
    job = studies.order_study(acting_user=cast.ada, plan=plan)
    run_job(job.pk)
    assert seen[0] == (1, "rates loaded")
    assert seen[-1] == (6, "125 plans of 125")
    job.refresh_from_db()
    assert (job.state, job.done, job.total) == (Job.State.SUCCEEDED, 6, 6)


def test_what_cannot_be_studied_fails_with_the_planners_words(cast, fleet):
    csv = "key,rate,tenant\na,5,acme\nb,4,bolt\n"
    workload = make.import_rates(cast, fleet, csv)
    plan = make.built_plan(cast, fleet, workload=workload, slots_per_destination=1, tenant_floor={"acme": 4})
    job = studies.order_study(acting_user=cast.ada, plan=plan)
    run_job(job.pk)
    job.refresh_from_db()
    assert job.state == Job.State.FAILED
    assert "the floors sum to 4, above slots = 3" in job.error
    event = AuditEvent.objects.get(action="study.failed")
    assert (event.subject_label, event.reason) == (str(plan), job.error)


def test_ordering_and_finishing_are_audited(cast, plan):
    study = studied(cast, plan)
    ordered, finished = (AuditEvent.objects.get(action=f"study.{what}") for what in ("ordered", "finished"))
    assert (ordered.actor_name, ordered.subject_id, ordered.after) == ("ada", plan.pk, {"kind": "sensitivity"})
    assert finished.after == {"study": study.pk, "kind": "sensitivity", "plans": 125}
    assert len(finished.evidence_digest) == 64


@pytest.mark.parametrize("who", ["vera", "grace", "linus"])
def test_only_planners_order_studies(cast, plan, who):
    with pytest.raises(NotAllowed):
        studies.order_study(acting_user=getattr(cast, who), plan=plan)


def test_what_has_no_table_is_studied_already_or_is_not_a_kind_of_study_is_refused(cast, fleet, plan):
    with pytest.raises(Conflict, match="Flat-LB has no table"):
        studies.order_study(acting_user=cast.ada, plan=fleet.plans.get(kind="flat"))
    with pytest.raises(Invalid) as refusal:
        studies.order_study(acting_user=cast.ada, plan=plan, kind="tea leaves")
    assert refusal.value.field == "kind"
    studies.order_study(acting_user=cast.ada, plan=plan)
    with pytest.raises(Conflict, match="already queued or running"):
        studies.order_study(acting_user=cast.ada, plan=plan)


def test_a_study_cannot_be_edited_or_deleted(cast, plan):
    study = studied(cast, plan)
    with pytest.raises((IntegrityError, DatabaseError), match="Cannot update"), transaction.atomic():
        Study.objects.filter(pk=study.pk).update(results={})
    with pytest.raises((IntegrityError, DatabaseError), match="Cannot delete"), transaction.atomic():
        study.delete()


def test_the_job_list_names_the_plan_that_is_studied(cast, fleet, plan):
    job = studies.order_study(acting_user=cast.ada, plan=plan)
    assert [row.plan_number for row in recent_jobs(fleet) if row.pk == job.pk] == [plan.number]


def test_the_message_of_a_study_names_the_task_that_runs_jobs(cast, plan, monkeypatch):
    sent = []
    monkeypatch.setattr(queue.current_app, "send_task", lambda name, args, **_: sent.append((name, args)))
    job = studies.order_study(acting_user=cast.ada, plan=plan)
    jobs.send(job)
    assert sent == [("planner.run_job", [job.pk])]
