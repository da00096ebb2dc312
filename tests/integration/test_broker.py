"""A job that is filed while the broker is away: the request answers, the row waits, the sweep starts it."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path

import pytest

from cacheroute_web.embedded import Valkey
from planner.models import Job
from tests import factories as make
from tests.integration.console import Console
from tests.integration.workers import Worker, wait_for
from tests.speed import lateness

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def broker():
    """A broker of this test alone, so that it may die."""
    with tempfile.TemporaryDirectory(prefix="cr-broker-") as folder:
        server = Valkey(Path(folder) / "valkey", durable=False)
        server.start()
        yield server
        server.stop()


@pytest.fixture
def body(cast, fleet):
    workload, calibration = make.make_workload(cast, fleet), make.make_calibration(cast, fleet)
    return {"fleet": fleet.slug, "workload": workload.pk, "calibration": calibration.pk}


def file_job(console, body):
    """The job of an ordered plan, and how long the request took."""
    started = time.monotonic()
    status, answer = console.ask("POST", "/api/v1/plans/", body)
    assert status == 202, answer
    return Job.objects.get(pk=answer["job"]), time.monotonic() - started


@pytest.mark.parametrize("used_before", [True, False], ids=["after a working send", "as the first send"])
def test_with_the_broker_down_the_request_answers_and_the_job_starts_when_it_is_back(secret, body, broker, used_before):
    with Console(secret, BROKER_URL=broker.url) as console:
        if used_before:
            assert file_job(console, body)[0].dispatched_at is not None
        broker.stop()
        for _ in range(2):
            job, took = file_job(console, body)
            assert took < 3 * lateness()
            assert (job.state, job.dispatched_at) == ("queued", None)
        broker.start()
        with Worker(beat=True, BROKER_URL=broker.url):
            wait_for(lambda: not Job.objects.exclude(state="succeeded").exists(), 30, "the sweep sent them")
        assert file_job(console, body)[0].dispatched_at is not None  # and messages flow again


def test_a_broker_that_hangs_holds_a_request_for_a_bounded_time(secret, body, broker):
    with Console(secret, BROKER_URL=broker.url) as console:
        file_job(console, body)
        assert broker.process is not None
        broker.process.send_signal(signal.SIGSTOP)
        try:
            job, took = file_job(console, body)
        finally:
            broker.process.send_signal(signal.SIGCONT)
        assert job.state == "queued"
        assert took < 5 * lateness()
