"""The verdict on the page of a plan: censored ladders, tenants, dips, other plans, what-if replays, old verdicts."""

from __future__ import annotations

import json
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from dashboards.plan import app
from planner.analysis.verdict import CapacityOfSeeds, PolicyFigures, Verdict
from planner.models import Fleet, Plan, Replay
from planner.selectors.plans import page as plan_page
from tests import factories as make
from tests.factories import Cast

pytestmark = pytest.mark.django_db


def page_of(client: Client, plan: Plan, **query: Any) -> Any:
    """The page, with its text in `body`."""
    page = client.get(reverse("plan", args=[plan.fleet.slug, plan.number]), query)
    assert page.status_code == 200
    page.body = unescape(page.content.decode())
    return page


def draw(client: Client, plan: Plan, figure: str, search: str = "", **inputs: Any) -> dict[str, Any]:
    """What the callback that draws this chart answers."""
    (output,) = (output for output in app.callback_map if figure in output)
    names = [name.rsplit(".", 1) for name in output.strip(".").split("...")]
    page = reverse("plan", args=[plan.fleet.slug, plan.number])
    given = {"address.pathname": page, "address.search": search, "theme.data": "light", **inputs}
    body = {
        "output": output,
        "outputs": [{"id": i, "property": p} for i, p in names],
        "inputs": [{"id": k.split(".")[0], "property": k.split(".")[1], "value": v} for k, v in given.items()],
        "changedPropIds": ["address.pathname"],
    }
    response = client.post("/charts/plan/_dash-update-component", json.dumps(body), "application/json")
    assert response.status_code == 200, response.content[:400]
    return response.json()["response"]


def copied(replay: Replay, verdict: dict[str, Any], **changes: Any) -> Replay:
    """Another replay of the same plan with this verdict, and one cell."""
    cell = replay.cells.filter(policy="cacheroute").first()
    replay.pk, replay.verdict = None, verdict
    for name, value in changes.items():
        setattr(replay, name, value)
    replay._state.adding = True
    replay.save()
    cell.pk, cell.replay = None, replay
    cell._state.adding = True
    cell.save()
    return replay


def test_a_replay_whose_lowest_load_fails_is_left_censored_in_text_table_and_chart(
    sign_in, cast: Cast, fleet: Fleet
) -> None:
    plan = make.built_plan(cast, fleet)
    replay = make.run_replay(cast, plan, loads_rps=[200.0, 400.0, 800.0], requests=1_000)
    assert set(replay.verdict["capacity"].values()) == {"<200"}
    client = sign_in(cast.vera)
    page = page_of(client, plan)
    assert "it serves < 200 requests/s where Flat-LB serves < 200" in page.body
    assert "CacheRoute, Flat-LB, Sticky: the SLO is missed at 200 requests/s" in page.body
    assert [row.text for row in page.context["ladder"].rows] == ["<200"] * 3
    figure = draw(client, plan, ".p99.figure.")["p99"]["figure"]
    drawn = {line["name"]: line for line in figure["data"] if line.get("yaxis") == "y2"}
    assert set(drawn) == {"CacheRoute", "Flat-LB", "Sticky"}
    for line in drawn.values():
        assert line["x"][0] < 200
        assert line["marker"]["symbol"][0].endswith("-open")
        assert "&lt; 200" in line["text"][0]


def test_tenants_are_shown_with_jain_and_the_worst_ratio(sign_in, cast: Cast, fleet: Fleet) -> None:
    rows = [f"k{i},{1 + i % 3},{'acme' if i % 2 else 'zoo'}" for i in range(40)]
    workload = make.import_rates(cast, fleet, "key,rate,tenant\n" + "\n".join(rows) + "\n")
    plan = make.built_plan(cast, fleet, workload=workload)
    replay = make.run_replay(cast, plan, loads_rps=[8.0], seeds=[1, 2])
    client = sign_in(cast.vera)
    page = page_of(client, plan)
    fairness = page.context["fairness"]
    assert {row.tenant.tenant for row in fairness.rows} == {"acme", "zoo"}
    assert sum(row.tenant.requests for row in fairness.rows) == pytest.approx(0.8 * 2_000)
    assert all(row.flat.p99_s.mean > 0 for row in fairness.rows)
    stored = replay.verdict["policies"]["cacheroute"]["loads"][0]
    assert fairness.summary[0].figures.worst_tenant_ratio.to_json() == stored["worst_tenant_ratio"]
    assert 0 < stored["jain_hit"]["mean"] <= 1
    assert "Tenants at 8 requests/s" in page.body
    drawn = draw(client, plan, ".load-bars.figure.", **{"load.value": "8"})
    assert drawn["chain-card"]["hidden"] is False
    steps = [100 * stored[name]["mean"] for name in ("available", "planned", "delivered")]
    assert drawn["chain"]["figure"]["data"][0]["x"][:3] == pytest.approx(steps)
    assert drawn["recovery-card"]["hidden"] is True


def test_both_weightings_imbalances_and_every_difference_are_in_the_tables(sign_in, cast: Cast, replayed: Plan) -> None:
    page = page_of(sign_in(cast.vera), replayed)
    against = replayed.replays.get().verdict["against_flat"]
    for row in page.context["differences"]:
        for name in ("hit_rate", "p99_s", "p50_s", "busy_imbalance", "throughput_rps"):
            stored = next(r for r in against[row.policy][name] if r["load_rps"] == row.load)
            assert getattr(row, name).to_json() == stored
    assert len(page.context["differences"]) == 6
    for words in (
        "Max/mean requests",
        "Max/mean busy time",
        "Hit rate, requests",
        "Differences from Flat-LB",
        "Planned",
    ):
        assert words in page.body


def test_a_verdict_from_before_tenants_chains_and_curves_is_still_shown(sign_in, cast: Cast, replayed: Plan) -> None:
    replay = replayed.replays.get()
    verdict = replay.verdict
    for name in ("available", "planned", "delivered", "delivered_planned", "jain_hit", "throughput_rps", "seeds"):
        for policy in verdict["policies"].values():
            for row in policy["loads"]:
                row.pop(name, None)
    for against in verdict["against_flat"].values():
        for name in ("p50_s", "busy_imbalance", "throughput_rps"):
            del against[name]
    copied(replay, verdict)
    client = sign_in(cast.vera)
    page = page_of(client, replayed)
    assert (page.context["chain"], page.context["fairness"], page.context["recovery"]) == ([], None, [])
    assert page.context["differences"][0].p50_s is None
    assert draw(client, replayed, ".load-bars.figure.", **{"load.value": "8"})["chain-card"]["hidden"] is True
    assert draw(client, replayed, ".p99.figure.")["charts"]["hidden"] is False


def faulty(verdict: dict[str, Any]) -> dict[str, Any]:
    """The verdict with a fault that CacheRoute came back from in two of three seeds and Flat-LB in none."""
    curve = {"width_s": 4.0, "warmup_s": 8.0, "requests": [9] * 6, "prompt_tokens": [90] * 6,
             "cached_tokens": [0, 40, 80, 20, 70, 80]}  # fmt: skip
    mean = {"mean": 0.8, "half": 0.01}
    back = {"at_s": 12.0, "before": mean, "depth_points": {"mean": 55.0, "half": 2.0}, "of": 3, "seen_s": 12.0}
    dips = {
        "cacheroute": back | {"duration_s": {"mean": 7.0, "half": 1.0, "missing": 1}, "censored": 1},
        "flat-lb": back | {"duration_s": None, "censored": 3},
    }
    events = {policy: [{"load_rps": 8.0, "curve": curve, "dips": [dip]}] for policy, dip in dips.items()}
    return verdict | {"events": events}


def test_a_what_if_replay_is_shown_when_asked_for_and_never_as_evidence(sign_in, cast: Cast, replayed: Plan) -> None:
    evidence = replayed.replays.get()
    fault = {"kind": "down", "destination": "d1", "position": 1, "start": 0.5, "end": None}
    changes = {"what_if": True, "parameters": evidence.parameters | {"faults": [fault], "what_if": ["faults"]}}
    what_if = copied(replayed.replays.get(), faulty(evidence.verdict), **changes)
    client = sign_in(cast.vera)
    page = page_of(client, replayed)
    assert page.context["replay"] == evidence
    assert f"?replay={what_if.pk}" in page.body
    assert draw(client, replayed, ".load-bars.figure.", **{"load.value": "8"})["recovery-card"]["hidden"] is True

    page = page_of(client, replayed, replay=what_if.pk)
    assert page.context["replay"] == what_if
    assert page.context["headline"].startswith("What if, with faults: within a p99 of")
    assert "All six checks" not in page.context["headline"]
    rows = {row.policy: row for row in page.context["recovery"]}
    assert rows["flat-lb"].back == ">12 s: not recovered before the end"
    assert rows["cacheroute"].back == "7 ± 1 s where it recovered; 1 of 3 seeds did not within 12 s"
    assert rows["cacheroute"].event == "d1 down"
    drawn = draw(client, replayed, ".load-bars.figure.", f"?replay={what_if.pk}", **{"load.value": "8"})
    assert drawn["recovery-card"]["hidden"] is False
    assert "1: d1 down at 12 s" in drawn["recovery-note"]["children"]


@pytest.mark.parametrize("asked", ["999999", "abc", "-1", "9" * 40, "²"])
def test_a_replay_of_another_plan_is_not_shown(sign_in, cast: Cast, replayed: Plan, asked: str) -> None:
    client = sign_in(cast.vera)
    assert page_of(client, replayed, replay=asked).context["replay"] == replayed.replays.get()
    assert draw(client, replayed, ".p99.figure.", f"?replay={asked}")["charts"]["hidden"] is False


def test_loads_of_bisection_and_other_plans_are_in_their_tables(sign_in, cast: Cast, replayed: Plan) -> None:
    replay = replayed.replays.get()
    verdict = replay.verdict
    mine = verdict["policies"]["cacheroute"]
    mine["loads"].insert(2, mine["loads"][1] | {"load_rps": 12.0})
    verdict["loads_rps"] = [4.0, 8.0, 12.0, 24.0]
    verdict["policies"]["cacheroute@7"] = mine
    verdict["capacity"]["cacheroute@7"] = mine["capacity"]["text"]
    verdict["against_flat"]["cacheroute@7"] = verdict["against_flat"]["cacheroute"]
    verdict["against_candidate"] = {"cacheroute@7": verdict["against_flat"]["cacheroute"]}
    copied(replay, verdict, policies=[*replay.policies, "cacheroute@7"])
    client = sign_in(cast.vera)
    page = page_of(client, replayed)
    flat = next(row for row in page.context["ladder"].rows if row.policy == "flat-lb")
    assert flat.cells[2] is None
    assert "not run" in page.body
    assert [r.policy for r in page.context["figures"] if r.load == 12.0] == ["cacheroute", "cacheroute@7"]
    assert {row.name for row in page.context["other_plans"]} == {"CacheRoute, plan 7"}
    assert "Other plans</h2>" in page.body
    names = {line["name"] for line in draw(client, replayed, ".p99.figure.")["p99"]["figure"]["data"]}
    assert "CacheRoute, plan 7" in names


def test_the_headline_names_the_policies_that_pass_more_of_the_ladder_than_the_plan():
    def of(steps, text):
        return PolicyFigures(capacity=CapacityOfSeeds(steps=tuple(steps), text=text))

    policies = {"flat-lb": of([1, 1], "60"), "cacheroute": of([2, 3], "120 to 180")}
    verdict = Verdict(slo_p99_s=3.5, loads_rps=(), seeds=(), policies=policies)
    assert plan_page._better(verdict) == ""
    policies |= {"preble": of([3, 3], ">=180"), "dualmap": of([2, 3], "180")}
    assert plan_page._better(verdict) == " Preble (>=180) serves more than the plan."
    policies["chwbl"] = of([3, 3], "180")
    assert plan_page._better(verdict) == " Preble (>=180) and CHWBL (180) serve more than the plan."
