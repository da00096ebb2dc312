"""From a rates file and a trace to an active plan and back, by the API alone."""

import json
import re

import numpy as np
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone
from rest_framework.test import APIClient

from planner.models import Job, ReplayCell, Rollout
from planner.tasks import run_cell, run_job
from tests import factories as make

pytestmark = pytest.mark.django_db
API = "/api/v1"


def rates_csv(keys=200):
    rates = 20 * np.arange(1, keys + 1) ** -1.1 / np.sum(np.arange(1, keys + 1) ** -1.1)
    return "key,rate\n" + "".join(f"tenant-{i},{rate:.6f}\n" for i, rate in enumerate(rates))


def mooncake_jsonl(requests=1_500, keys=60):
    """Requests over 100 s; a key's first two blocks are its own and are chained."""
    random = np.random.default_rng(5)
    share = np.arange(1, keys + 1) ** -1.0
    lines = []
    for n, key in enumerate(random.choice(keys, requests, p=share / share.sum()).tolist()):
        ids = [0, *(1_000 + 20 * key + i for i in range(12)), 100_000 + n]
        row = {"timestamp": n * 66, "input_length": 512 * len(ids), "output_length": 20, "hash_ids": ids}
        lines.append(json.dumps(row))
    return "\n".join(lines)


def work() -> None:
    """Do what the workers do, in this process, until nothing is open."""
    for job in Job.objects.filter(state="queued", kind="build_plan"):
        run_job(job.pk)
    while cell := ReplayCell.objects.filter(state="queued").first():
        run_cell(cell.replay_id)


@pytest.mark.parametrize(("name", "content"), [("rates.csv", rates_csv()), ("trace.jsonl", mooncake_jsonl())])
def test_from_a_file_to_an_active_plan_and_back_to_flat_lb(clients, cast, fleet, name, content):
    token: APIClient = clients.token(cast.root)

    def post(path, body, expected, client=token, **headers):
        response = client.post(API + path, body, headers=headers)
        assert response.status_code == expected, response.content
        return response

    def get(path):
        response = token.get(API + path)
        assert response.status_code == 200, response.content
        return response

    rates_alone = name.endswith("csv")
    if rates_alone:  # their requests are synthesised, which a fleet's policy has to accept
        seen = get(f"/fleets/{fleet.slug}/")["ETag"]
        changed = token.patch(f"{API}/fleets/{fleet.slug}/", {"accept_simulated": True}, headers={"If-Match": seen})
        assert changed.status_code == 200, changed.content

    make.hear(fleet)
    upload = {"fleet": fleet.slug, "file": SimpleUploadedFile(name, content.encode()), "name": "measured"}
    upload["measured_at"] = timezone.now().isoformat()
    imported = token.post(f"{API}/workloads/", upload, format="multipart")
    assert imported.status_code == 201, imported.content
    workload = imported.json()
    assert get(f"/workloads/{workload['id']}/").json() == workload
    assert workload["source_name"] == name
    assert bool(workload["trace_digest"]) != rates_alone

    sweep = post("/calibrations/simulate/", {"fleet": fleet.slug, "workload": workload["id"]}, 202).json()
    run_job(sweep["job"])
    simulated = get(f"/jobs/{sweep['job']}/").json()["result"]["calibration"]
    assert get(f"/calibrations/{simulated}/").json()["source"] == "simulated"
    figures = {"fleet": fleet.slug, "q_cap": 8, "slots_measured": 60, "points": [{"load_rps": 4, "p99_s": 1.2}]}
    calibration = post("/calibrations/", figures, 201).json()
    assert (calibration["source"], calibration["warm_slots"]) == ("measured", 48)

    ordered = post("/plans/", {"fleet": fleet.slug, "workload": workload["id"], "calibration": calibration["id"]}, 202)
    assert ordered["Location"] == ordered.json()["job_url"] == f"http://testserver/api/v1/jobs/{ordered.json()['job']}/"
    plan_path = f"/plans/{ordered.json()['plan']}/"
    assert get(plan_path).json()["state"] == "queued"
    work()
    job = token.get(ordered["Location"]).json()
    assert (job["state"], job["done"], job["total"]) == ("succeeded", 3, 3)
    plan = get(plan_path).json()
    assert plan["state"] == "built"
    assert plan["summary"]["build_ms"] > 0
    assert re.fullmatch(r"[0-9a-f]{64}", plan["table_digest"])

    replayed = post("/replays/", {"plan": plan["id"], **make.REPLAY}, 202).json()
    work()
    replay = get(f"/replays/{replayed['replay']}/").json()
    assert replay["state"] == "succeeded"
    cells = get(f"/replays/{replayed['replay']}/cells/?page_size=500").json()["results"]
    assert len(cells) == 27
    assert {cell["state"] for cell in cells} == {"succeeded"}

    (gate,) = get(f"/gates/?plan={plan['id']}").json()["results"]
    assert [item["number"] for item in gate["items"]] == [1, 2, 3, 4, 5, 6]
    again = post("/gates/", {"plan": plan["id"]}, 201).json()
    assert again["evidence_digest"] == gate["evidence_digest"]
    assert gate["passed"], [i["explanation"] for i in gate["items"] if i["verdict"] != "pass"]

    tag = get(plan_path)["ETag"]
    submitted = post(f"{plan_path}submit/", {}, 200, **{"If-Match": tag})
    assert submitted.json()["state"] == "in_review"
    decision = {"evidence_digest": gate["evidence_digest"], "comment": "good"}
    own = clients.root.post(f"{API}{plan_path}approve/", decision, headers={"If-Match": submitted["ETag"]})
    assert (own.status_code, own.json()["code"]) == (403, "second-person")
    approved = post(f"{plan_path}approve/", decision, 200, clients.grace, **{"If-Match": submitted["ETag"]})
    assert approved.json()["state"] == "approved"
    (approval,) = get(f"/approvals/?plan={plan['id']}").json()["results"]
    assert (approval["approver"], approval["evidence_digest"]) == ("grace", gate["evidence_digest"])

    rollout = post("/rollouts/", {"plan": plan["id"]}, 201)
    assert (rollout.json()["state"], rollout.json()["weight"]) == ("canary", 0.1)
    path = f"/rollouts/{rollout.json()['id']}/"
    held = post(f"{path}advance/", {}, 409, **{"If-Match": rollout["ETag"]}).json()
    assert held["code"] == "held"
    make.pass_step(Rollout.objects.get(pk=rollout.json()["id"]))
    active = post(f"{path}advance/", {}, 200, **{"If-Match": rollout["ETag"]})
    assert (active.json()["state"], len(active.json()["steps"])) == ("active", 2)
    table = get(f"/fleets/{fleet.slug}/routing-table/").json()
    assert [(arm["plan"], arm["weight"]) for arm in table["arms"]] == [(1, 1.0)]

    back = post(f"/fleets/{fleet.slug}/fall-back/", {"reason": "p99 rose"}, 200).json()
    assert (back["state"], back["weight"]) == ("active", 1.0)
    assert get(path).json()["state"] == "rolled_back"
    assert get(f"/fleets/{fleet.slug}/routing-table/").json()["arms"][0]["plan"] == 0

    trail = get(f"/audit-events/?fleet__slug={fleet.slug}&page_size=500").json()["results"]
    policy = ["fleet.policy_changed"] if rates_alone else []
    assert [event["action"] for event in reversed(trail)] == [
        "fleet.created", *policy, "workload.imported", "calibration.ordered", "calibration.recorded",
        "calibration.recorded",
        "plan.ordered", "plan.built", "replay.started", "replay.finished", "gate.evaluated", "gate.evaluated",
        "plan.submitted", "plan.approved", "rollout.started", "rollout.activated", "fleet.fell_back",
    ]  # fmt: skip
    assert trail[0]["reason"] == "p99 rose"
    by_token = {event["action"]: event["token_prefix"] for event in trail}
    assert by_token["plan.ordered"].startswith("crt_")
    assert by_token["plan.approved"] == ""
