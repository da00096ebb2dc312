"""Going back a release forgets nothing silently, and going forward mends what it must."""

import math

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.recorder import MigrationRecorder

from planner.models import Plan, Study
from planner.services import calibrations, replays, studies
from planner.tasks import run_study
from tests import factories as make

# PostgreSQL changes tables within transactions, so the end of each test takes its migrations back.
pytestmark = pytest.mark.django_db


def migrate(*name):
    """To the named migration; to the newest when none is named."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # a table with checks to come cannot be altered
    with transaction.atomic():
        call_command("migrate", "planner", *name, verbosity=0)


def schema():
    """Migrations that are applied, columns and triggers."""
    applied = {name for app, name in MigrationRecorder(connection).applied_migrations() if app == "planner"}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_name LIKE 'planner_%'"
        )
        columns = set(cursor.fetchall())
        cursor.execute("SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname LIKE 'pgtrigger_%'")
        return applied, columns, set(cursor.fetchall())


def test_undoing_replans_is_refused_while_there_are_some_and_changes_nothing(cast, fleet):
    incumbent = make.built_plan(cast, fleet)
    replan = make.built_plan(cast, fleet, incumbent=incumbent)
    migrate("0002")
    before = schema()
    with pytest.raises(IrreversibleError, match="1 plans are replans"):
        migrate("0001")
    assert schema() == before
    assert Plan.objects.get(pk=replan.pk).incumbent == incumbent


def test_undoing_studies_is_refused_while_there_are_some_and_changes_nothing(cast, fleet):
    job = studies.order_study(acting_user=cast.ada, plan=make.built_plan(cast, fleet))
    migrate("0003")
    before = schema()
    with pytest.raises(IrreversibleError, match="0 studies and 1 jobs"):
        migrate("0002")
    migrate()  # the code of today needs the tables of today
    run_study(job.pk)
    migrate("0003")
    with pytest.raises(IrreversibleError, match="1 studies and 1 jobs"):
        migrate("0002")
    assert schema() == before
    assert Study.objects.count() == 1


def test_without_replans_and_studies_the_way_back_and_forth_is_open(cast, fleet):
    plan = make.built_plan(cast, fleet)
    before = schema()
    migrate("0001")
    assert ("planner_plan", "incumbent_id") not in schema()[1]
    migrate()
    assert schema() == before
    assert Plan.objects.get(pk=plan.pk).table_id == plan.table_id


def test_weights_out_of_bounds_are_mended_counted_and_shown(cast, fleet, capsys):
    migrate("0003")
    for index, weight in enumerate((math.nan, math.inf, 1e-9, 2.5)):
        fleet.destinations.filter(index=index).update(weight=weight)
    migrate("0004")
    assert "3 destinations had a weight outside" in capsys.readouterr().out
    assert list(fleet.destinations.values_list("weight", "version")) == [(1.0, 2), (100.0, 2), (0.01, 2), (2.5, 1)]


def test_undoing_jobs_of_calibrations_is_refused_while_there_are_some_and_changes_nothing(cast, fleet):
    calibrations.order_calibration(acting_user=cast.ada, fleet=fleet, workload=make.make_workload(cast, fleet))
    migrate("0005")
    before = schema()
    with pytest.raises(IrreversibleError, match="1 jobs of calibrations and fits and 0 fitted serving profiles"):
        migrate("0004")
    assert schema() == before


def test_undoing_options_of_replays_is_refused_while_older_code_would_take_a_what_if_for_evidence(cast, fleet):
    plan = make.built_plan(cast, fleet)
    fault = {"kind": "down", "destination": "d1", "start": 0.5}
    replays.start_replay(acting_user=cast.ada, plan=plan, loads_rps=[4.0], seeds=[1], requests=500, faults=[fault])
    migrate()
    before = schema()
    with pytest.raises(IrreversibleError, match="1 replays with faults or a plan switch"):
        migrate("0005")
    assert schema() == before
