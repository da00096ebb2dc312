"""`manage.py explain_plan` and `manage.py run_study`."""

import io
import json
import threading

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from planner.models import Job, Study
from planner.tasks import run_job
from tests import factories as make
from tests.factories import Cast, make_fleet

CSV = "key,rate\nbig,9\nmid,3\nsmall,2\ntail,1.5\nlast,0.5\n"


def small_plan(cast, fleet):
    calibration = make.make_calibration(cast, fleet, q_cap=5.0)
    workload = make.import_rates(cast, fleet, CSV)
    return make.built_plan(cast, fleet, workload=workload, calibration=calibration, slots_per_destination=1)


def explain_plan(fleet, *arguments):
    out = io.StringIO()
    call_command("explain_plan", "--fleet", fleet.slug, "--plan", "1", "--user", "vera", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.django_db
def test_a_key_and_a_destination_are_explained_in_words_and_as_json(cast, fleet):
    plan = small_plan(cast, fleet)
    text = explain_plan(fleet, "--key", "mid").splitlines()
    assert text[0].startswith("mid has rank 2 of 5 by rate")
    assert text[1:] == [
        "  k: 1 by rate / q_cap, 1 planned",
        "  d2: 3 requests/s on top of 0.5 (0.5 cold, 0 heavier keys), number 1 of 4 by load",
    ]
    told = json.loads(explain_plan(fleet, "--key", "tail", "--json"))
    assert (told["plan"], told["reason"]) == (plan.pk, "slots_gone")
    lines = explain_plan(fleet, "--destination", "d2").splitlines()
    assert "  mid: 3 of 3 requests/s" in lines
    assert "  lost, d3 takes 1 keys by backup (3 requests/s), 0 of keys it holds too, 0.1667 cold" in lines


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one of the arguments --key --destination is required"),
        (["--key", "mid", "--destination", "d2"], "not allowed with"),
        (["--key", "mdi"], "the closest: mid"),
        (["--key", "mid", "--plan", "7"], "has no plan 7"),
    ],
)
def test_what_cannot_be_explained_is_one_clear_line(cast, fleet, arguments, message):
    small_plan(cast, fleet)
    with pytest.raises(CommandError, match=message):
        explain_plan(fleet, *arguments)


@pytest.mark.django_db
def test_a_study_of_a_plan_without_a_table_is_refused(cast, fleet):
    with pytest.raises(CommandError, match="Flat-LB has no table"):
        call_command("run_study", "sensitivity", "--fleet", fleet.slug, "--plan", "0", "--user", "ada")
    with pytest.raises(CommandError, match="invalid choice"):
        call_command("run_study", "tea-leaves", "--fleet", fleet.slug, "--plan", "0", "--user", "ada")


def work_one_study():
    """What a worker does, in a thread of its own."""
    try:
        for _ in range(200):
            job = Job.objects.filter(kind=Job.Kind.STUDY, state=Job.State.QUEUED).first()
            if job is not None:
                run_job(job.pk)
                return
            threading.Event().wait(0.05)
    finally:
        connections.close_all()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_waits_for_the_study_and_prints_it(as_json):
    cast = Cast()
    fleet = make_fleet(cast, "alpha")
    small_plan(cast, fleet)
    worker = threading.Thread(target=work_one_study)
    worker.start()
    out = io.StringIO()
    arguments = ["sensitivity", "--fleet", "alpha", "--plan", "1", "--user", "ada", *(["--json"] if as_json else [])]
    call_command("run_study", *arguments, stdout=out, stderr=io.StringIO())
    worker.join()
    study = Study.objects.get()
    if as_json:
        printed = json.loads(out.getvalue())
        assert (printed["id"], printed["plan"]) == (study.pk, 1)
        assert printed["results"] == study.results
        return
    lines = out.getvalue().splitlines()
    assert lines[0] == f"Sensitivity study {study.pk} of Plan 1"
    assert lines[1] == "busiest key as measured: it holds 56.25% of the requests"
    assert "busiest key raised to 5%: it holds 56.25% of the requests, as measured" in lines
    assert sum(line.startswith("  ") and line != lines[2] for line in lines) == 125
    base = next(line for line in lines if line.split()[:2] == ["1", "1"])
    assert base.split() == ["1", "1", "87.5%", "1.250", "1.813", "0.0%", "4", "1"]
