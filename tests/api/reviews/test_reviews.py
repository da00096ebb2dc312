"""Gates, approvals, waivers and comments by the API: rights of tokens and of users."""

import datetime as dt

import pytest
from django.utils import timezone

from planner.models import Approval, Plan, Waiver
from planner.services.reviews import waivers
from planner.services.reviews.submissions import submit_plan
from tests import factories as make

pytestmark = pytest.mark.django_db
API = "/api/v1"


def post(client, path, body=None, **headers):
    return client.post(f"{API}{path}", body or {}, format="json", headers=headers)


@pytest.fixture
def submitted(cast, fleet):
    return make.submitted_plan(cast, fleet)


def decision(plan, **more):
    return {"evidence_digest": make.evaluation_of(plan).evidence_digest, **more}


def tag(plan):
    return {"If-Match": f'"{Plan.objects.get(pk=plan.pk).version}"'}


def test_an_evaluation_shows_every_check_and_where_its_frozen_page_is(clients, cast, fleet):
    plan = make.replayed_plan(cast, fleet)
    (gate,) = clients.vera.get(f"{API}/gates/?plan={plan.pk}").json()["results"]
    assert (gate["policy_version"], len(gate["items"])) == (1, 6)
    checks = [check for item in gate["items"] for check in item["checks"]]
    assert {"loss-bounded", "incumbent-replayed", "better-than-flat", "telemetry-fresh"} <= {c["name"] for c in checks}
    assert all(check["verdict"] == "pass" and check["waiver"] is None for check in checks)
    page = clients.vera.get(gate["page"])
    assert page.status_code == 200
    assert gate["evidence_digest"] in page.content.decode()
    by_digest = clients.vera.get(f"{API}/gates/?evidence_digest={gate['evidence_digest']}").json()["results"]
    assert [row["id"] for row in by_digest] == [gate["id"]]


@pytest.mark.parametrize("name", ["min_approvals", "approvals", "quorum", "force", "expires_at"])
def test_no_quorum_is_read_from_a_request(clients, cast, fleet, submitted, problem, name):
    """A field that an approval does not have is refused by its name; the plan waits as before."""
    body = decision(submitted) | {name: 1}
    problem(post(clients.grace, f"/plans/{submitted.pk}/approve/", body, **tag(submitted)), 400, "invalid", f"/{name}")
    assert Plan.objects.get(pk=submitted.pk).state == "in_review"
    assert not Approval.objects.exists()


def test_one_approval_never_meets_a_quorum_of_two(clients, cast):
    fleet = make.make_fleet(cast, "two", min_approvals=2)
    plan = make.submitted_plan(cast, fleet)
    answer = post(clients.grace, f"/plans/{plan.pk}/approve/?min_approvals=1", decision(plan), **tag(plan))
    assert (answer.status_code, answer.json()["state"]) == (200, "in_review")


def test_an_approval_shows_its_validity_and_only_the_approver_withdraws_it(clients, cast, fleet, submitted, problem):
    assert (
        post(clients.grace, f"/plans/{submitted.pk}/approve/", decision(submitted), **tag(submitted)).status_code == 200
    )
    (row,) = clients.vera.get(f"{API}/approvals/?plan={submitted.pk}").json()["results"]
    assert (row["approver"], row["author"], row["submitter"], row["shared_email"]) == ("grace", "ada", "ada", "")
    held = dt.datetime.fromisoformat(row["expires_at"]) - dt.datetime.fromisoformat(row["created_at"])
    assert abs(held - dt.timedelta(days=14)) < dt.timedelta(seconds=5)
    path = f"/approvals/{row['id']}/withdraw/"
    problem(post(clients.root, path), 403, "not-yours")
    token = clients.token(cast.grace)
    problem(token.post(f"{API}{path}", {}, format="json"), 403, "permission-denied")
    withdrawn = post(clients.grace, path, {"reason": "too early"})
    assert (withdrawn.status_code, withdrawn.json()["withdrawn_reason"]) == (200, "too early")
    problem(post(clients.grace, path), 409, "withdrawn")
    problem(post(clients.linus, "/rollouts/", {"plan": submitted.pk}), 409, "approval-withdrawn")
    standing = clients.vera.get(f"{API}/approvals/?withdrawn_at__isnull=true").json()["results"]
    assert standing == []


def test_an_administrator_and_their_token_need_a_second_person_too(clients, cast, fleet, problem):
    root = cast.root
    plan = make.replayed_plan(cast, fleet)
    plan = submit_plan(acting_user=root, plan=plan)
    path = f"/plans/{plan.pk}/approve/"
    problem(post(clients.root, path, decision(plan), **tag(plan)), 403, "second-person")
    token = clients.token(cast.grace)
    answer = token.post(f"{API}{path}", decision(plan), format="json", headers=tag(plan))
    problem(answer, 403, "permission-denied")
    # There is no other door: no approval is made, changed or deleted by hand.
    for method in ("post", "put", "patch", "delete"):
        assert getattr(clients.root, method)(f"{API}/approvals/", {}, format="json").status_code in (403, 405)
    assert not Approval.objects.exists()


def test_comments_are_written_and_read(clients, cast, fleet, submitted, problem):
    path = f"/plans/{submitted.pk}/comments/"
    said = post(clients.vera, path, {"text": "why W 48?"})
    assert (said.status_code, said.json()["author"]) == (201, "vera")
    assert said.json()["evidence_digest"] == make.evaluation_of(submitted).evidence_digest
    problem(post(clients.vera, path, {"text": " "}), 400, "invalid", "/text")
    problem(post(clients.vera, path, {"text": "x" * 4_001}), 400, "invalid", "/text")
    post(clients.grace, path, {"text": "as calibrated"})
    found = clients.vera.get(f"{API}{path}").json()["results"]
    assert [row["text"] for row in found] == ["as calibrated", "why W 48?"]


@pytest.fixture
def stuck(cast):
    return make.replayed_plan(cast, make.make_fleet(cast, "stuck", max_loss_imbalance=1.0))


def waiver_of(plan, **more):
    expires_at = (timezone.now() + dt.timedelta(days=5)).isoformat()
    return {
        "plan": plan.pk,
        "check_name": "loss-bounded",
        "reason": "racks on Friday",
        "expires_at": expires_at,
        **more,
    }


def test_a_token_requests_a_waiver_and_a_user_grants_it(clients, cast, stuck, problem):
    token = clients.token(cast.ada)
    asked = token.post(f"{API}/waivers/", waiver_of(stuck), format="json")
    assert (asked.status_code, asked.json()["requested_by"], asked.json()["granted_by"]) == (201, "ada", None)
    path = f"/waivers/{asked.json()['id']}/"
    for action in ("grant", "refuse", "revoke"):
        answer = clients.token(cast.grace).post(f"{API}{path}{action}/", {}, format="json")
        problem(answer, 403, "permission-denied")
    problem(post(clients.ada, f"{path}grant/"), 403, "not-allowed")
    problem(post(clients.grace, f"{path}revoke/"), 409, "not-granted")
    assert post(clients.grace, f"{path}grant/").json()["granted_by"] == "grace"
    gate = post(clients.ada, "/gates/", {"plan": stuck.pk}).json()
    assert (gate["passed"], gate["items"][1]["verdict"], gate["items"][1]["waived"]) == (True, "fail", True)
    ended = post(clients.grace, f"{path}revoke/", {"reason": "the racks are late"})
    assert (ended.status_code, ended.json()["ended_by"]) == (200, "grace")
    assert clients.vera.get(f"{API}/waivers/?ended_at__isnull=true").json()["results"] == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"check_name": "better-than-flat"}, "check_name"),
        ({"check_name": "x" * 61}, "check_name"),
        ({"reason": ""}, "reason"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "9999-01-01T00:00:00Z"}, "expires_at"),
        ({"granted_by": "ada"}, "granted_by"),
        ({"plan": 10**12}, "plan"),
    ],
)
def test_an_invalid_waiver_is_refused_at_its_field(clients, cast, stuck, problem, changes, field):
    problem(post(clients.ada, "/waivers/", waiver_of(stuck) | changes), 400, "invalid", f"/{field}")
    assert not Waiver.objects.exists()


def test_a_token_of_one_fleet_requests_no_waiver_of_another(clients, cast, fleet, stuck, problem):
    token = clients.token(cast.ada, fleet=fleet)
    problem(token.post(f"{API}/waivers/", waiver_of(stuck), format="json"), 403, "permission-denied")
    row = waivers.request_waiver(
        acting_user=cast.ada, plan=stuck, check_name="loss-bounded", reason="r",
        expires_at=timezone.now() + dt.timedelta(days=1),
    )  # fmt: skip
    assert token.get(f"{API}/waivers/{row.pk}/").status_code == 404
    assert token.get(f"{API}/waivers/").json()["results"] == []
