"""Bisection after the ladder: loads that follow from the figures, cells that are run like any other."""

import pytest

from planner.models import Job, Replay
from planner.services.replays import cells, completion
from planner.services.replays import orders as replay_orders
from planner.simulation.ladder import next_load
from tests import factories as make

pytestmark = pytest.mark.django_db
LADDER = {"loads_rps": [4.0, 60.0], "seeds": [1, 2], "requests": 1_000, "policies": ["flat-lb"]}


def run_all(cast, plan, order=lambda cells: cells, **options):
    """Replay with the queued cells of each round taken in an order."""
    row, job = replay_orders.start_replay(acting_user=cast.ada, plan=plan, **{**LADDER, **options})
    while queued := list(row.cells.filter(state="queued").order_by("id")):
        for cell in order(queued):
            cells.run_cell(cell.pk)
    return Replay.objects.get(pk=row.pk), Job.objects.get(pk=job.pk)


def test_each_round_halves_the_bracket_of_every_policy_with_the_same_load_for_all_seeds(cast, fleet):
    row, job = run_all(cast, make.built_plan(cast, fleet), refine=3)
    assert (row.state, row.refine_rounds, job.state) == ("succeeded", 3, "succeeded")
    assert row.loads_rps == [4.0, 60.0]
    for policy in row.policies:
        tested = {}
        for load, figures in row.cells.filter(policy=policy, load_rps__in=row.loads_rps).values_list(
            "load_rps", "figures"
        ):
            tested.setdefault(load, []).append(figures["p99_s"])
        for load in row.refined_loads.get(policy, []):
            means = [sum(p99) / 2 for p99 in tested.values()]
            assert next_load(list(tested), means, row.slo_p99_s) == load
            added = row.cells.filter(policy=policy, load_rps=load)
            assert sorted(added.values_list("seed", flat=True)) == [1, 2]
            tested[load] = [cell.figures["p99_s"] for cell in added]
    refined = sum(len(loads) for loads in row.refined_loads.values())
    assert refined >= 3, row.refined_loads
    assert (job.done, job.total) == (8 + 2 * refined, 8 + 2 * refined)
    capacity = row.verdict["policies"]["cacheroute"]["capacity"]
    assert capacity["of"] == 2 + len(row.refined_loads["cacheroute"])


def test_the_order_in_which_cells_finish_changes_neither_loads_nor_figures(cast, fleet):
    plan = make.built_plan(cast, fleet)
    one, _ = run_all(cast, plan, refine=2)
    two, _ = run_all(cast, plan, refine=2, order=lambda cells: reversed(cells))
    assert one.refined_loads == two.refined_loads
    assert one.figures_digest == two.figures_digest != ""
    assert one.verdict == two.verdict


def test_censored_ladders_are_left_alone_unless_they_are_to_be_extended(cast, fleet):
    plan = make.built_plan(cast, fleet)
    left_alone, _ = run_all(cast, plan, refine=2, loads_rps=[2.0, 4.0])
    assert (left_alone.refined_loads, left_alone.refine_rounds) == ({}, 0)
    assert left_alone.verdict["capacity"]["cacheroute"] == ">=4"
    extended, _ = run_all(cast, plan, refine=2, extend=True, loads_rps=[2.0, 4.0])
    assert extended.refined_loads["cacheroute"][0] == 8.0


def test_the_digest_covers_every_figure_of_every_cell(cast, fleet):
    row, job = run_all(cast, make.built_plan(cast, fleet))
    assert row.figures_digest == completion.digest_of(row) == job.result["figures_digest"]
    cell = row.cells.first()
    cell.figures["hit_rate"] += 1e-16 + cell.figures["hit_rate"] * 1e-15
    cell.save(update_fields=["figures"])
    assert completion.digest_of(row) != row.figures_digest


def test_counting_a_finished_cell_takes_two_queries_and_no_lock(cast, fleet, django_assert_num_queries):
    row, _ = replay_orders.start_replay(acting_user=cast.ada, plan=make.built_plan(cast, fleet), **LADDER)
    cells.run_cell(row.cells.first().pk)
    with django_assert_num_queries(2) as captured:
        completion.close_if_complete(row.pk)
    assert not any("FOR " in query["sql"] and "UPDATE" in query["sql"].split("FOR ", 1)[1] for query in captured)
