"""`manage.py build_plan` takes every option of a plan."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from planner.management.commands.build_plan import figures
from tests import factories as make

pytestmark = pytest.mark.django_db
CSV = "key,rate,tenant,prefix_tokens\na,3,acme,100\nb,2,eu=west,200\nc,1,bolt,300\n"


@pytest.fixture
def ready(cast, fleet):
    make.import_rates(cast, fleet, CSV)
    make.make_calibration(cast, fleet)
    return fleet


def build_plan(fleet, *arguments):
    """Order by the command; the plan as it was printed."""
    out = io.StringIO()
    call_command("build_plan", "--fleet", fleet.slug, "--user", "ada", "--no-wait", "--json", *arguments, stdout=out)
    return fleet.plans.get(number=json.loads(out.getvalue())["number"])


def test_options_reach_the_plan(ready):
    plan = build_plan(
        ready, "--admission", "density", "--tokens-per-destination", "5000", "--slots-per-destination", "7",
        "--balance-target", "1.5", "--tenant-quota", "acme=3", "--tenant-quota", "eu=west=2",
        "--tenant-floor", "acme=1",
    )  # fmt: skip
    parameters = plan.parameters
    assert (parameters["admission"], parameters["tokens_per_destination"]) == ("density", 5000)
    assert (parameters["slots_per_destination"], parameters["balance_target"]) == (7, 1.5)
    assert parameters["tenant_quota"] == {"acme": 3, "eu=west": 2}
    assert parameters["tenant_floor"] == {"acme": 1}
    assert build_plan(ready).parameters["admission"] == "top_rate"


def test_a_replan_names_its_plan_by_number(cast, ready):
    base = make.built_plan(cast, ready)
    plan = build_plan(
        ready, "--replan-from", str(base.number), "--max-imbalance-factor", "1.2", "--max-moved-share", "0"
    )
    assert plan.incumbent == base
    assert (plan.parameters["max_imbalance_factor"], plan.parameters["max_moved_share"]) == (1.2, 0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tenant-quota", "acme"], "is not a tenant and its slots"),
        (["--tenant-quota", "acme=-1"], "is not a tenant and its slots"),
        (["--tenant-quota", "acme=1", "--tenant-quota", "acme=2"], "--tenant-quota: 'acme' occurs twice"),
        (["--tenant-floor", "nobody=1"], "has no tenant 'nobody'"),
        (["--replan-from", "77"], "fleet alpha has no plan 77"),
        (["--replan-from", "0"], "Flat-LB has no table to start from"),
        (["--max-moved-share", "0.1"], "only a replan"),
        (["--admission", "lot"], "invalid choice"),
    ],
)
def test_what_cannot_be_used_is_one_clear_line(ready, arguments, message):
    with pytest.raises(CommandError, match=message):
        build_plan(ready, *arguments)
    assert not ready.plans.filter(kind="cacheroute").exists()


def test_the_outcome_says_what_the_page_says_first(cast, ready):
    base = make.built_plan(cast, ready)
    lines = figures(base)
    assert "admitted   3 of 3 keys, 100.0% of requests, 3 of" in lines[0]
    assert "at most    1 keys on a destination" in lines[3]
    assert len(lines) == 4
    replan = make.built_plan(cast, ready, incumbent=base, slots_per_destination=0)
    assert figures(replan)[-1].endswith(
        "0 keys move (0.0% of the warm rate), 3 lose their warm slots (100.0% of requests)"
    )
