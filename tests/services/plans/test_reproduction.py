"""What is stored can be computed again, and a result that cannot is named."""

import json

import pgtrigger
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from planner.errors import Conflict
from planner.models import Plan, Replay, ReplayCell
from planner.services.plans.reproduction import reproduce_plan, reproduce_replay
from tests import factories as make

pytestmark = pytest.mark.django_db


def test_a_plan_and_a_replan_give_the_same_table_again(cast, fleet, capsys):
    plan = make.built_plan(cast, fleet)
    replan = make.built_plan(cast, fleet, incumbent=plan)
    for one in (plan, replan):
        found = reproduce_plan(Plan.objects.get(pk=one.pk))
        assert found.same
        assert found.recomputed == one.table.digest
    call_command("reproduce", "plan", str(plan.pk), json=True)
    assert json.loads(capsys.readouterr().out)["same"] is True


def test_a_replay_gives_the_same_figures_again_and_a_changed_one_is_named(cast, fleet):
    plan = make.built_plan(cast, fleet)
    replay = make.run_replay(cast, plan)
    assert reproduce_replay(Replay.objects.get(pk=replay.pk)).same
    cell = replay.cells.first()
    ReplayCell.objects.filter(pk=cell.pk).update(figures={**cell.figures, "hit_rate": 0.999})
    found = reproduce_replay(Replay.objects.get(pk=replay.pk))
    assert not found.same
    assert found.differences == [f"{cell}: hit_rate"]
    with pytest.raises(CommandError, match="not reproduced"):
        call_command("reproduce", "replay", str(replay.pk))


def test_a_plan_whose_parameters_were_changed_behind_the_console_is_another(cast, fleet):
    plan = make.built_plan(cast, fleet)
    with pgtrigger.ignore(), connection.cursor() as cursor:
        cursor.execute(
            """UPDATE planner_plan SET parameters = jsonb_set(parameters, '{slots}', '7') WHERE id = %s""", [plan.pk]
        )
    assert not reproduce_plan(Plan.objects.get(pk=plan.pk)).same


def test_what_has_no_result_is_refused(cast, fleet):
    with pytest.raises(Conflict):
        reproduce_plan(make.order_plan(cast, fleet)[0])
    with pytest.raises(CommandError, match="there is no replay"):
        call_command("reproduce", "replay", "0")
