"""The page of a plan, and the decisions on it."""

from __future__ import annotations

import json

import pytest
from django.test import Client
from django.urls import reverse

from dashboards.plan import app
from planner.models import AuditEvent, Fleet, Plan, Rollout
from planner.services.fleets import fleets
from planner.services.fleets.destinations import change_destination
from planner.services.reviews.submissions import submit_plan
from tests import factories as make
from tests.factories import Cast
from tests.web.conftest import texts

pytestmark = pytest.mark.django_db


def send(client: Client, action: str, plan: Plan, **data: object):
    """Send a form of the plan's page and follow to the page that answers."""
    return client.post(reverse(action, args=[plan.fleet.slug, plan.number]), data, follow=True)


def test_the_page_shows_the_verdict_the_figures_and_the_checklist(sign_in, cast: Cast, replayed: Plan) -> None:
    page = sign_in(cast.vera).get(reverse("plan", args=[replayed.fleet.slug, replayed.number]))
    body = page.content.decode()
    evaluation = make.evaluation_of(replayed)
    verdict = replayed.replays.get().verdict
    assert f"it serves {verdict['capacity']['cacheroute']}".replace(">", "&gt;").replace("<", "&lt;") in body
    assert [row.load for row in page.context["figures"]] == [load for load in verdict["loads_rps"] for _ in range(3)]
    assert page.context["figures"][0].figures.p99_s.to_json() == verdict["policies"]["cacheroute"]["loads"][0]["p99_s"]
    assert [item.number for item in page.context["items"]] == [1, 2, 3, 4, 5, 6]
    for item in evaluation.items.all():
        assert item.title in body
    assert evaluation.evidence_digest in body
    assert "simulated replicas" in body


def test_a_plan_goes_from_review_to_active_and_back_by_forms(sign_in, cast: Cast, replayed: Plan) -> None:
    ada, grace, linus = (sign_in(p) for p in (cast.ada, cast.grace, cast.linus))
    page = send(ada, "plan-submit", replayed, expected_version=replayed.version)
    assert texts(page) == ["Plan 1 is in review. A second person must decide."]
    replayed.refresh_from_db()

    page = grace.get(reverse("home"))
    assert [plan.pk for plan in page.context["waiting"]] == [replayed.pk]
    digest = make.evaluation_of(replayed).evidence_digest
    page = send(
        grace, "plan-approve", replayed, expected_version=replayed.version, evidence_digest=digest, comment="ok"
    )
    assert texts(page) == ["Plan 1 is approved. An operator can start its canary."]
    assert not grace.get(reverse("home")).context["waiting"]

    replayed.refresh_from_db()
    page = send(linus, "canary-start", replayed, expected_version=replayed.version)
    assert texts(page) == ["Plan 1 is in canary with 10% of keys."]
    rollout = replayed.rollouts.get()
    make.pass_step(rollout)
    advance = reverse("rollout-advance", args=[replayed.fleet.slug, rollout.pk])
    page = linus.post(advance, {"expected_version": rollout.version}, follow=True)
    assert texts(page) == ["Plan 1 is active: it routes all keys of Alpha."]

    page = linus.post(reverse("fall-back", args=[replayed.fleet.slug]), follow=True)
    assert texts(page)[0].startswith("Fell back: all keys of Alpha are routed by Flat-LB")
    rollout.refresh_from_db()
    assert rollout.state == Rollout.State.ROLLED_BACK
    page = linus.post(reverse("fall-back", args=[replayed.fleet.slug]), follow=True)
    assert "Nothing changed" in texts(page)[0]
    assert AuditEvent.objects.filter(action="fleet.fell_back").count() == 1


def test_the_author_sees_that_a_second_person_must_approve(sign_in, cast: Cast, replayed: Plan) -> None:
    root = sign_in(cast.root)  # holds every right, and submits
    submit_plan(acting_user=cast.root, plan=replayed)
    page = send(root, "plan-approve", replayed, evidence_digest=make.evaluation_of(replayed).evidence_digest)
    assert texts(page) == ["The author and the submitter cannot approve; a second person must."]
    assert "A second person must approve it" in page.content.decode()
    replayed.refresh_from_db()
    assert replayed.state == "in_review"


def test_evidence_judged_again_after_the_page_was_read_is_not_approved(sign_in, cast: Cast, replayed: Plan) -> None:
    submit_plan(acting_user=cast.ada, plan=replayed)
    page = send(sign_in(cast.grace), "plan-approve", replayed, evidence_digest="0" * 64)
    assert "read it again before you decide" in texts(page)[0]
    assert not replayed.approvals.exists()


def test_a_stale_version_is_reported_and_changes_nothing(sign_in, cast: Cast, replayed: Plan) -> None:
    page = send(sign_in(cast.ada), "plan-submit", replayed, expected_version=replayed.version - 1)
    assert "another user changed this" in texts(page)[0]
    assert Plan.objects.get(pk=replayed.pk).state == "replayed"


def test_a_version_that_is_no_number_is_refused(sign_in, cast: Cast, replayed: Plan) -> None:
    page = send(sign_in(cast.ada), "plan-submit", replayed, expected_version="two")
    assert texts(page) == ["Expected version: the version must be a whole number"]


def test_rejecting_needs_a_reason(sign_in, cast: Cast, replayed: Plan) -> None:
    submit_plan(acting_user=cast.ada, plan=replayed)
    grace = sign_in(cast.grace)
    page = send(grace, "plan-reject", replayed, comment=" ")
    assert texts(page)[0].startswith("Comment: ")
    page = send(grace, "plan-reject", replayed, comment="q_cap is from the wrong engine")
    assert texts(page) == ["Plan 1 is rejected."]
    assert "q_cap is from the wrong engine" in page.content.decode()


def test_a_canary_can_be_aborted(sign_in, cast: Cast, fleet: Fleet) -> None:
    plan = make.approved_plan(cast, fleet)
    linus = sign_in(cast.linus)
    send(linus, "canary-start", plan)
    rollout = plan.rollouts.get()
    page = linus.post(reverse("rollout-abort", args=[fleet.slug, rollout.pk]), {"reason": "errors"}, follow=True)
    assert texts(page) == ["The canary of Plan 1 is aborted. The incumbent routes its keys again."]
    rollout.refresh_from_db()
    assert (rollout.state, rollout.end_reason) == ("aborted", "errors")


def test_a_replay_with_a_wrong_load_is_refused_beside_its_field(sign_in, cast: Cast, fleet: Fleet) -> None:
    plan = make.built_plan(cast, fleet)
    form = {"loads_rps": "10, many", "seeds": "1", "arrivals": "poisson", "requests": "1000"}
    page = send(sign_in(cast.ada), "replay-new", plan, **form)
    assert page.status_code == 400
    assert page.context["replay_form"].errors["loads_rps"] == ["'many' is not a number."]
    page = send(sign_in(cast.ada), "replay-new", plan, **{**form, "loads_rps": "-5"})
    assert page.status_code == 400
    assert page.context["replay_form"].errors["loads_rps"] == ["Enter loads from 1e-6 to 1e8 requests/s"]


def test_progress_is_shown_while_a_replay_runs_and_asks_for_a_reload_when_none_does(
    sign_in, cast: Cast, fleet: Fleet
) -> None:
    plan = make.built_plan(cast, fleet)
    ada = sign_in(cast.ada)
    address = reverse("plan-progress", args=[fleet.slug, plan.number])
    assert ada.get(address)["HX-Refresh"] == "true"
    form = {"loads_rps": "10 20 30", "seeds": "1", "arrivals": "poisson", "requests": "1000"}
    page = send(ada, "replay-new", plan, **form)
    assert "0 of 9 cells" in page.content.decode()
    assert "HX-Refresh" not in ada.get(address, {"state": "replaying"})
    assert ada.get(address, {"state": "built"})["HX-Refresh"] == "true"  # the page shows an older state
    assert Client().get(address, headers={"HX-Request": "true"})["HX-Refresh"] == "true"  # signed out meanwhile


def test_charts_are_refused_to_the_anonymous_and_to_other_paths(sign_in, cast: Cast) -> None:
    for path in ("_dash-layout", "_dash-dependencies"):
        assert Client().get(f"/charts/plan/{path}").status_code == 401
        assert sign_in(cast.vera).get(f"/charts/plan/{path}").status_code == 200
    assert Client().post("/charts/plan/_dash-update-component", "{}", "application/json").status_code == 401
    assert sign_in(cast.vera).get("/charts/plan/_reload-hash").status_code == 404
    assert sign_in(cast.vera).get("/charts/plan/").status_code == 404


def test_a_callback_needs_its_csrf_token(cast: Cast) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast.vera)
    response = client.post("/charts/plan/_dash-update-component", "{}", "application/json")
    assert response.status_code == 403


def callback(client: Client, outputs: dict[str, str], inputs: dict[str, object], changed: str) -> dict:
    """Call a Dash callback as the browser does."""
    ids = [{"id": k.rsplit(".", 1)[0], "property": k.rsplit(".", 1)[1]} for k in outputs]
    body = {
        "output": ".." + "...".join(outputs) + "..",
        "outputs": ids,
        "inputs": [{"id": k.split(".")[0], "property": k.split(".")[1], "value": v} for k, v in inputs.items()],
        "changedPropIds": [changed],
    }
    response = client.post("/charts/plan/_dash-update-component", json.dumps(body), "application/json")
    assert response.status_code == 200, response.content[:400]
    return response.json()["response"]


def outputs_with(figure: str) -> dict[str, str]:
    """All outputs of the callback that draws this chart."""
    (output,) = (output for output in app.callback_map if figure in output)
    return dict.fromkeys(output.strip(".").split("..."), "")


def test_charts_draw_the_stored_verdict(sign_in, cast: Cast, replayed: Plan) -> None:
    page = reverse("plan", args=[replayed.fleet.slug, replayed.number])
    inputs = {"address.pathname": page, "address.search": "", "theme.data": "dark"}
    found = callback(sign_in(cast.vera), outputs_with(".p99.figure."), inputs, "address.pathname")
    verdict = replayed.replays.get().verdict
    for chart, figure, scale in (
        ("hit-rate", "hit_rate", 100),
        ("request-hit-rate", "request_hit_rate", 100),
        ("p99", "p99_s", 1),
        ("imbalance", "imbalance", 1),
        ("busy-imbalance", "busy_imbalance", 1),
    ):
        drawn = {line["name"]: line for line in found[chart]["figure"]["data"] if line.get("showlegend", True)}
        assert set(drawn) == {"CacheRoute", "Flat-LB", "Sticky"}
        stored = [scale * row[figure]["mean"] for row in verdict["policies"]["flat-lb"]["loads"]]
        assert drawn["Flat-LB"]["y"] == pytest.approx(stored)
        assert found[f"{chart}-simulated"]["children"] == "≈ simulated"
    assert found["p99"]["figure"]["layout"]["shapes"][0]["y0"] == verdict["slo_p99_s"]
    assert found["charts"]["hidden"] is False


def test_a_plan_without_a_replay_shows_its_planned_load_and_no_choice_of_loads(
    sign_in, cast: Cast, fleet: Fleet
) -> None:
    fleet.destinations.filter(index=0).update(weight=3.0)
    plan = make.built_plan(cast, fleet)
    page = reverse("plan", args=[fleet.slug, plan.number])
    inputs = {"address.pathname": page, "address.search": "", "theme.data": "light", "load.value": None}
    found = callback(sign_in(cast.vera), outputs_with("load-bars.figure"), inputs, "address.pathname")
    (bars,) = found["load-bars"]["figure"]["data"]
    assert max(bars["y"]) == pytest.approx(plan.summary["imbalance"], rel=1e-5)
    assert (found["load"]["options"], found["load-control"]["hidden"], found["bars"]["hidden"]) == ([], True, False)


def test_bars_show_planned_and_replayed_load_of_every_destination(sign_in, cast: Cast, replayed: Plan) -> None:
    page = reverse("plan", args=[replayed.fleet.slug, replayed.number])
    inputs = {"address.pathname": page, "address.search": "", "theme.data": "light", "load.value": "8"}
    found = callback(sign_in(cast.vera), outputs_with("load-bars.figure"), inputs, "load.value")
    bars = found["load-bars"]["figure"]["data"]
    assert [bar["name"] for bar in bars][:2] == ["Planned, CacheRoute", "Replayed, CacheRoute"]
    assert all(bar["x"] == ["d0", "d1", "d2", "d3"] for bar in bars)
    row = next(r for r in replayed.replays.get().verdict["policies"]["cacheroute"]["loads"] if r["load_rps"] == 8)
    assert bars[1]["customdata"] == row["requests_per_destination"]
    assert sum(bars[1]["y"]) == pytest.approx(4)
    assert [option["value"] for option in found["load"]["options"]] == ["4", "8", "24"]
    assert found["load-control"]["hidden"] is False


def test_a_plan_is_withdrawn_from_review_and_archived_by_forms(sign_in, cast: Cast, replayed: Plan) -> None:
    client = sign_in(cast.ada)
    send(client, "plan-submit", replayed, expected_version=replayed.version)
    replayed.refresh_from_db()
    page = send(client, "plan-withdraw", replayed, expected_version=replayed.version)
    assert "withdrawn from review" in page.content.decode()
    replayed.refresh_from_db()
    assert replayed.state == Plan.State.REPLAYED
    send(client, "plan-retire", replayed, expected_version=replayed.version)
    replayed.refresh_from_db()
    assert replayed.state == Plan.State.CANCELLED


def test_an_approved_plan_with_newer_evidence_asks_for_another_review(sign_in, cast: Cast, fleet: Fleet) -> None:
    plan = make.approved_plan(cast, fleet)
    client = sign_in(cast.ada)
    address = reverse("plan", args=[plan.fleet.slug, plan.number])
    assert "Submit for review" not in client.get(address).content.decode()
    fleets.change_policy(acting_user=cast.root, fleet=fleet, max_imbalance=1.4)
    make.judge_again(cast, plan)
    body = client.get(address).content.decode()
    assert "Not deployable: the approvals are for other evidence than the latest" in body
    assert "Submit for review" in body


def test_flat_lb_shows_no_build_replay_or_review(sign_in, cast: Cast, fleet: Fleet) -> None:
    body = sign_in(cast.vera).get(reverse("plan", args=[fleet.slug, 0])).content.decode()
    assert "Flat-LB" in body
    for step in ("✓ built", "✓ replayed", "✓ in review"):
        assert step not in body


def test_the_lifecycle_of_a_plan_is_shown(sign_in, cast: Cast, replayed: Plan) -> None:
    body = sign_in(cast.vera).get(reverse("plan", args=[replayed.fleet.slug, replayed.number])).content.decode()
    assert "✓ built" in body
    assert "✓ approved" not in body


def test_the_checklist_is_marked_when_its_evidence_is_out_of_date(sign_in, cast: Cast, replayed: Plan) -> None:
    address = reverse("plan", args=[replayed.fleet.slug, replayed.number])
    assert "Out of date" not in sign_in(cast.vera).get(address).content.decode()
    destination = replayed.fleet.destinations.get(index=1)
    change_destination(acting_user=cast.root, destination=destination, weight=2.0)
    body = sign_in(cast.vera).get(address).content.decode()
    assert "Out of date: the speeds of the destinations changed after this evaluation" in body
