"""Forms of a fleet: changes and refusals."""

from __future__ import annotations

import gzip

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from planner.models import ApiToken, Fleet, Job, Workload
from tests import factories as make
from tests.factories import Cast
from tests.web.conftest import texts

pytestmark = pytest.mark.django_db


def upload(client: Client, fleet: Fleet, content: bytes, name: str = "rates.csv", **fields: object):
    """Send the import form with a file."""
    form = {"format": "auto", "key_depth": 2, "block_tokens": 512, **fields}
    file = SimpleUploadedFile(name, content)
    return client.post(reverse("workload-new", args=[fleet.slug]), {**form, "file": file}, follow=True)


def test_an_imported_file_is_shown_with_its_figures(sign_in, cast: Cast, fleet: Fleet) -> None:
    page = upload(sign_in(cast.ada), fleet, b"key,rate\na,3\nb,1.5\nc,1.5\n", name="rates.csv")
    workload = Workload.objects.get()
    assert page.redirect_chain == [(reverse("workload", args=[fleet.slug, workload.pk]), 302)]
    assert texts(page) == ["Imported rates: 3 keys."]
    body = page.content.decode()
    assert "50.00%" in body  # what key a carries
    assert workload.source_sha256 in body
    assert 'aria-label="The busiest 1 of 3 keys carry half of the requests."' in body


def test_a_dominant_key_is_reported_at_the_top(sign_in, cast: Cast, fleet: Fleet) -> None:
    rows = [
        f'{{"timestamp": {i}, "input_length": 600, "output_length": 5, "hash_ids": [0, {i + 1}]}}' for i in range(4)
    ]
    content = "\n".join(rows).encode()
    page = upload(sign_in(cast.ada), fleet, content, name="trace.jsonl", key_depth=1)
    notice = next(n for n in Workload.objects.get().notices if n["code"] == "one-key-dominates")
    body = page.content.decode()
    assert '<div class="message message-warning" role="alert">! ' + notice["message"] in body


@pytest.mark.parametrize(
    ("content", "name", "row", "field"),
    [
        (b"key,rate\na,1\nb,nan\n", "rates.csv", 3, "rate"),
        (b"key,rate\na,1\na,2\n", "rates.csv", 3, "key"),
        (b"key,rate\na,-1\n", "rates.csv", 2, "rate"),
        (b"key,rate\n" + b"k" * 513 + b",1\n", "rates.csv", 2, "key"),
        (b"key,rate\na,1,2\n", "rates.csv", 2, None),
        (b"\x1f\x8bnot really gzip", "rates.csv.gz", None, None),
        (gzip.compress(b"key,rate\na,x\n", mtime=0), "rates.csv.gz", 2, "rate"),
    ],
)
def test_a_broken_file_is_refused_by_file_row_and_field(
    sign_in, cast: Cast, fleet: Fleet, content: bytes, name: str, row: int | None, field: str | None
) -> None:
    page = upload(sign_in(cast.ada), fleet, content, name=name)
    assert page.status_code == 400
    problem = page.context["form"].problem
    assert (problem.file, problem.row, problem.field) == (name, row, field)
    body = page.content.decode()
    assert "Nothing was imported" in body
    assert page.context["form"].errors["file"] == [str(problem)]
    assert not Workload.objects.exists()


def test_an_empty_upload_and_none_at_all_are_refused(sign_in, cast: Cast, fleet: Fleet) -> None:
    page = upload(sign_in(cast.ada), fleet, b"")
    assert page.status_code == 400
    assert page.context["form"].errors["file"] == ["The submitted file is empty."]
    page = sign_in(cast.ada).post(reverse("workload-new", args=[fleet.slug]), {})
    assert page.status_code == 400
    assert "file" in page.context["form"].errors


@pytest.mark.parametrize("rows", [30_000, 600_000])  # within what the form may hold, and far over it
def test_an_upload_over_the_limit_is_refused_and_names_the_command(
    sign_in, cast: Cast, fleet: Fleet, settings, rows: int
) -> None:
    settings.UPLOAD_MAX_BYTES = 100_000
    page = upload(sign_in(cast.ada), fleet, b"key,rate\n" + b"a,1\n" * rows)
    assert not fleet.workloads.exists()
    assert "se the command import_workload" in page.content.decode()


def test_a_name_that_is_taken_is_refused_beside_the_name(sign_in, cast: Cast, fleet: Fleet) -> None:
    ada = sign_in(cast.ada)
    upload(ada, fleet, b"key,rate\na,3\n", name="night.csv")
    page = ada.post(
        reverse("workload-new", args=[fleet.slug]),
        {"format": "auto", "key_depth": 2, "block_tokens": 512, "name": "night",
         "file": SimpleUploadedFile("x.csv", b"key,rate\na,4\n")},
    )  # fmt: skip
    assert page.status_code == 409
    assert page.context["form"].errors["name"] == ["This fleet already has a workload named 'night'"]


def test_a_calibration_is_recorded_and_a_wrong_one_refused(sign_in, cast: Cast, fleet: Fleet) -> None:
    ada, address = sign_in(cast.ada), reverse("calibration-new", args=[fleet.slug])
    form = {"q_cap": "12.5", "q_cap_censored": "", "slots_measured": "50", "margin": "0.8", "knee_method": "sweep"}
    page = ada.post(address, form, follow=True)
    assert texts(page) == ["Recorded: q_cap 12.5/s, W 40 (measured)."]
    page = ada.post(address, {**form, "q_cap": "-1"})
    assert page.status_code == 400
    assert page.context["form"].errors["q_cap"] == ["Q_cap is a number of requests/s from 1e-6 to 1e6"]
    page = ada.post(address, {**form, "margin": "1.2"})
    assert page.context["form"].errors["margin"] == ["The margin is a share above 0, at most 1"]


def test_a_plan_is_ordered_with_its_replay(sign_in, cast: Cast, fleet: Fleet) -> None:
    workload, calibration = make.make_workload(cast, fleet), make.make_calibration(cast, fleet)
    form = {"workload": workload.pk, "calibration": calibration.pk, "replay_after_build": "on", "loads_rps": "4, 8, 12"}
    page = sign_in(cast.ada).post(reverse("plan-new", args=[fleet.slug]), form, follow=True)
    assert texts(page) == ["Plan 1 is ordered. The build starts when a worker is free."]
    assert Job.objects.get().payload == {"replay": {"loads_rps": [4.0, 8.0, 12.0], "seeds": [1, 2, 3]}}
    assert "0 of 3 steps" in page.content.decode()


def test_a_plan_with_a_wrong_target_or_no_destination_up_is_refused(sign_in, cast: Cast, fleet: Fleet) -> None:
    workload, calibration = make.make_workload(cast, fleet), make.make_calibration(cast, fleet)
    ada, address = sign_in(cast.ada), reverse("plan-new", args=[fleet.slug])
    form = {"workload": workload.pk, "calibration": calibration.pk}
    page = ada.post(address, {**form, "balance_target": "0.5"})
    assert page.context["form"].errors["balance_target"] == ["The balance target is a max/mean ratio of at least 1"]
    fleet.destinations.update(state="down")
    page = ada.post(address, form)
    assert page.status_code == 409
    assert "set at least one to up" in page.content.decode()


def test_another_fleets_workload_cannot_be_chosen(sign_in, cast: Cast, fleet: Fleet) -> None:
    other = make.make_fleet(cast, "beta")
    workload, calibration = make.make_workload(cast, other), make.make_calibration(cast, fleet)
    form = {"workload": workload.pk, "calibration": calibration.pk}
    page = sign_in(cast.ada).post(reverse("plan-new", args=[fleet.slug]), form)
    assert page.status_code == 400
    assert "workload" in page.context["form"].errors


def test_a_fleet_is_created_from_lines_and_a_wrong_line_named(sign_in, cast: Cast) -> None:
    root = sign_in(cast.root)
    form = make.policy_form(
        slug="gamma",
        name="Gamma",
        engine_profile="llama-3.1-8b-h100",
        slo_p99_s="2",
        min_approvals="2",
        min_seeds="5",
        destinations="a http://10.0.0.1:8000\n\nb b:8000\n",
    )
    page = root.post(reverse("fleet-new"), form)
    assert page.status_code == 400
    assert page.context["form"].errors["destinations"] == ["Line 3: 'b:8000' is not an http or https URL."]
    page = root.post(
        reverse("fleet-new"), {**form, "destinations": "a http://10.0.0.1:8000\nb https://b.example\n"}, follow=True
    )
    assert texts(page) == ["Gamma was created. Flat-LB is live."]
    made = Fleet.objects.get(slug="gamma")
    assert (made.min_approvals, made.min_seeds, made.canary_weights) == (2, 5, [0.01, 0.1, 0.5])
    assert (made.auto_advance, made.auto_fall_back, made.accept_simulated) == (False, True, False)
    page = root.post(reverse("fleet-new"), {**form, "destinations": "a http://10.0.0.1"})
    assert page.status_code == 409
    assert page.context["form"].errors["slug"] == ["A fleet named 'gamma' already exists"]


def test_policy_changes_and_a_stale_form_is_refused(sign_in, cast: Cast, fleet: Fleet) -> None:
    root, address = sign_in(cast.root), reverse("fleet-policy", args=[fleet.slug])
    form = make.policy_form(slo_p99_s="2.5", canary_weights="0.1", expected_version=fleet.version)
    assert "Evidence under the old policy is stale" in texts(root.post(address, form, follow=True))[0]
    page = root.post(address, {**form, "slo_p99_s": "9"})
    assert page.status_code == 412
    assert "another user changed this" in page.content.decode()
    fleet.refresh_from_db()
    assert fleet.slo_p99_s == 2.5


def test_managers_change_the_serving_profile(sign_in, cast: Cast, fleet: Fleet) -> None:
    address = reverse("fleet-serving", args=[fleet.slug])
    assert sign_in(cast.linus).get(address).status_code == 403
    form = {"engine_profile": "llama-3.1-8b-h100", "expected_version": fleet.version}
    page = sign_in(cast.root).post(address, form, follow=True)
    assert "are stale" in texts(page)[0]
    fleet.refresh_from_db()
    assert fleet.serving_profile.engine_profile == "llama-3.1-8b-h100"
    assert sign_in(cast.root).post(address, form).status_code == 412


def test_a_destination_is_drained_and_a_stale_form_refused(sign_in, cast: Cast, fleet: Fleet) -> None:
    linus, address = sign_in(cast.linus), reverse("destination-state", args=[fleet.slug, 2])
    page = linus.post(address, {"state": "draining", "expected_version": 1}, follow=True)
    assert texts(page) == ["d2 is draining. Routers get the change at their next poll."]
    page = linus.post(address, {"state": "down", "expected_version": 1}, follow=True)
    assert "another user changed this" in texts(page)[0]
    page = linus.post(address, {"state": "asleep"}, follow=True)
    assert texts(page) == ["State: 'asleep' is not one of up, draining, down"]
    assert sign_in(cast.ada).post(address, {"state": "down"}).status_code == 403


def test_a_job_is_cancelled_from_the_fleets_page(sign_in, cast: Cast, fleet: Fleet) -> None:
    _plan, job = make.order_plan(cast, fleet)
    ada = sign_in(cast.ada)
    assert f'hx-get="{reverse("jobs-panel", args=[fleet.slug])}"' in ada.get(fleet_page(fleet)).content.decode()
    assert "HX-Refresh" not in ada.get(reverse("jobs-panel", args=[fleet.slug]))
    assert sign_in(cast.vera).post(reverse("job-cancel", args=[fleet.slug, job.pk])).status_code == 403
    page = ada.post(reverse("job-cancel", args=[fleet.slug, job.pk]), follow=True)
    assert "was cancelled" in texts(page)[0]
    assert ada.get(reverse("jobs-panel", args=[fleet.slug]))["HX-Refresh"] == "true"
    page = ada.post(reverse("job-cancel", args=[fleet.slug, job.pk]), follow=True)
    assert texts(page)[0].endswith("is already Cancelled")


def fleet_page(fleet: Fleet) -> str:
    return reverse("fleet", args=[fleet.slug])


def test_the_redirect_after_a_fallback_stays_on_this_site(sign_in, cast: Cast, fleet: Fleet) -> None:
    linus, address = sign_in(cast.linus), reverse("fall-back", args=[fleet.slug])
    assert linus.post(address, {"next": "https://evil.example/"}).url == fleet_page(fleet)
    assert linus.post(address, {"next": "/audit/"}).url == "/audit/"


def test_a_token_is_shown_once_and_revoked(sign_in, cast: Cast) -> None:
    ada = sign_in(cast.ada)
    page = ada.post(reverse("tokens"), {"name": "ci", "scopes": ["read", "plan"], "days": "30"})
    assert page.status_code == 201
    secret = page.context["secret"]
    assert secret.startswith("crt_")
    assert secret in page.content.decode()
    assert "no-store" in page["Cache-Control"]
    assert secret not in ada.get(reverse("tokens")).content.decode()
    page = ada.post(reverse("tokens"), {"name": "ci", "scopes": ["read"], "days": "30"})
    assert page.status_code == 409
    assert page.context["form"].errors["name"] == ["You already have a token named 'ci'"]
    token = ApiToken.objects.get()
    assert sign_in(cast.vera).post(reverse("token-revoke", args=[token.pk])).status_code == 404
    ada.post(reverse("token-revoke", args=[token.pk]))
    token.refresh_from_db()
    assert token.revoked_at is not None
