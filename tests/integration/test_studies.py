"""A study by real workers: done although its worker is killed, and once."""

from __future__ import annotations

import pytest

from planner.models import AuditEvent, Job, Study
from planner.services.jobs.sweep import sweep
from planner.services.plans import studies
from planner.simulation.synthetic import source_rate_shape, synthetic_key_names
from tests import factories as make
from tests.integration.workers import Worker, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]


def test_a_study_whose_worker_is_killed_in_its_middle_is_done_once_by_another(cast, fleet):
    keys = 60_000
    lines = zip(synthetic_key_names(keys), source_rate_shape(keys, total_rps=30.0), strict=True)
    csv = "key,rate\n" + "\n".join(f"{name},{float(rate)!r}" for name, rate in lines)
    plan = make.built_plan(cast, fleet, workload=make.import_rates(cast, fleet, csv), slots_per_destination=5_000)
    job = studies.order_study(acting_user=cast.ada, plan=plan)
    with Worker() as first:
        wait_for(lambda: Job.objects.get(pk=job.pk).done >= 2, 60, "a part is done")
        first.freeze()
        assert Job.objects.get(pk=job.pk).state == "running", "caught too late: the study was over already"
        first.kill()
        wait_for(lambda: sweep()["sent"] == 1, 5, "lock is freed")
    assert not Study.objects.exists()
    with Worker():
        wait_for(lambda: Job.objects.get(pk=job.pk).state == "succeeded", 60, "the other worker finished it")
    assert Job.objects.get(pk=job.pk).attempt == 2
    assert Study.objects.count() == 1
    assert AuditEvent.objects.filter(action="study.finished").count() == 1
