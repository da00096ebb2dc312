"""Lost updates and repeated requests: ETag, If-Match, Idempotency-Key."""

import datetime as dt
import threading

import pgtrigger
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.utils import timezone

from planner.models import ApiToken, AuditEvent, Calibration, Destination, Fleet, IdempotencyRecord, Plan, Workload
from tests import factories as make

pytestmark = pytest.mark.django_db
API = "/api/v1"


def calibration(fleet, **values):
    return {"fleet": fleet.slug, "q_cap": 8, "slots_measured": 60, **values}


# --- ETag --------------------------------------------------------------------------------------------
def test_a_row_that_did_not_change_is_a_304(clients, fleet):
    first = clients.vera.get(f"{API}/fleets/{fleet.slug}/")
    assert first["ETag"] == f'"{fleet.version}"'
    again = clients.vera.get(f"{API}/fleets/{fleet.slug}/", headers={"If-None-Match": f'"0", {first["ETag"]}'})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    other = clients.vera.get(f"{API}/fleets/{fleet.slug}/", headers={"If-None-Match": '"0"'})
    assert other.status_code == 200


def test_an_etag_that_compression_made_weak_is_still_good(clients, cast, fleet):
    gzipped = clients.root.get(f"{API}/fleets/{fleet.slug}/", headers={"Accept-Encoding": "gzip"})
    assert gzipped["Content-Encoding"] == "gzip"
    again = clients.root.get(f"{API}/fleets/{fleet.slug}/", headers={"If-None-Match": gzipped["ETag"]})
    assert again.status_code == 304
    body = {"max_imbalance": 2}
    changed = clients.root.patch(f"{API}/fleets/{fleet.slug}/", body, headers={"If-Match": gzipped["ETag"]})
    assert changed.status_code == 200


@pytest.fixture
def changes(cast, fleet):
    """Every change that could lose somebody else's: (who, method, path, body, the row)."""
    plan = make.replayed_plan(cast, fleet)
    destination = fleet.destinations.first()
    return {
        "policy": ("root", "patch", f"/fleets/{fleet.slug}/", {"max_imbalance": 2}, fleet),
        "destination": ("linus", "patch", f"/destinations/{destination.pk}/", {"state": "down"}, destination),
        "submit": ("ada", "post", f"/plans/{plan.pk}/submit/", {}, plan),
    }


@pytest.mark.parametrize("name", ["policy", "destination", "submit"])
def test_a_change_wants_the_version_that_was_read(clients, changes, name, problem):
    who, method, path, body, row = changes[name]
    send = getattr(getattr(clients, who), method)
    problem(send(API + path, body), 428, "precondition-required")
    for stale in (
        f'"{row.version + 1}"',
        '"x"',
        f"{row.version}",
        f'"0{row.version}"',
        '"7", "8"',
        '"1_0"',
        '"-1"',
        '"' + "9" * 5000 + '"',
    ):
        problem(send(API + path, body, headers={"If-Match": stale}), 412, "stale-version")
    row.refresh_from_db()
    done = send(API + path, body, headers={"If-Match": f'"{row.version}"'})
    assert done.status_code == 200
    assert done["ETag"] == f'"{row.version + 1}"'
    problem(send(API + path, body, headers={"If-Match": f'"{row.version}"'}), 412, "stale-version")


@pytest.mark.parametrize("header", ['"7", "{0}"', 'W/"7",W/"{0}"', "*", ' W/"{0}" '])
def test_if_match_takes_lists_weak_tags_and_any(clients, fleet, header):
    headers = {"If-Match": header.format(fleet.version)}
    done = clients.root.patch(f"{API}/fleets/{fleet.slug}/", {"max_imbalance": 2}, headers=headers)
    assert (done.status_code, done["ETag"]) == (200, f'"{fleet.version + 1}"')


@pytest.mark.parametrize(
    ("header", "status"),
    [("*", 304), ('W/"{0}"', 304), ('"7", W/"{0}"', 304), ('"7" , "8"', 200), ("{0}", 200), ('*, "7"', 200)],
)
def test_if_none_match_takes_lists_weak_tags_and_any(clients, fleet, header, status):
    headers = {"If-None-Match": header.format(fleet.version)}
    assert clients.vera.get(f"{API}/fleets/{fleet.slug}/", headers=headers).status_code == status


@pytest.mark.django_db(transaction=True)
def test_of_two_changes_at_once_one_is_stale(clients, cast, fleet):
    statuses = []

    def change(value):
        answer = client.patch(f"{API}/fleets/{fleet.slug}/", {"max_imbalance": value}, headers={"If-Match": '"1"'})
        statuses.append(answer.status_code)
        connection.close()

    client = clients.token(cast.root)
    threads = [threading.Thread(target=change, args=(value,)) for value in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, 412]
    assert Fleet.objects.get(pk=fleet.pk).version == 2


def test_a_form_that_lacks_a_box_does_not_empty_it(clients, cast):
    fleet = make.make_fleet(cast, accept_simulated=True)
    response = clients.root.patch(
        f"{API}/fleets/{fleet.slug}/", {"max_imbalance": "2"}, format="multipart", headers={"If-Match": '"1"'}
    )
    assert response.status_code == 200
    assert response.json()["accept_simulated"] is True


def test_a_change_of_nothing_is_refused(clients, fleet, problem):
    problem(clients.root.patch(f"{API}/fleets/{fleet.slug}/", {}, headers={"If-Match": '"1"'}), 400, "invalid")
    assert Fleet.objects.get(pk=fleet.pk).version == 1


def test_a_change_of_nothing_of_a_destination_is_refused(clients, fleet, problem):
    where = f"{API}/destinations/{fleet.destinations.first().pk}/"
    problem(clients.linus.patch(where, {}, headers={"If-Match": '"1"'}), 400, "invalid")
    problem(clients.linus.patch(where, {"state": ""}, headers={"If-Match": '"1"'}), 400, "invalid", "/state")
    assert set(Destination.objects.values_list("state", flat=True)) == {"up"}


# --- Idempotency-Key -----------------------------------------------------------------------------------
KEY = {"Idempotency-Key": "order-1"}


def test_the_same_request_again_gets_the_first_answer_and_does_nothing(clients, fleet):
    first = clients.ada.post(f"{API}/calibrations/", calibration(fleet), headers=KEY)
    events = AuditEvent.objects.count()
    again = clients.ada.post(f"{API}/calibrations/", calibration(fleet), headers=KEY)
    assert (again.status_code, again.json(), again["Location"]) == (201, first.json(), first["Location"])
    assert again["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first
    assert (Calibration.objects.count(), AuditEvent.objects.count()) == (1, events)


def test_a_refusal_is_repeated_as_the_problem_that_it_was(clients, fleet, problem):
    first = clients.ada.post(f"{API}/calibrations/", calibration(fleet, margin=2), headers=KEY)
    again = clients.ada.post(f"{API}/calibrations/", calibration(fleet, margin=2), headers=KEY)
    assert problem(again, 400, "invalid", "/margin") == first.json()


@pytest.mark.parametrize(
    ("path", "change"),
    [("/calibrations/", {"q_cap": 9}), ("/calibrations/", {"points": [{"load_rps": 1}]}), ("/plans/", {})],
)
def test_another_request_under_the_same_key_is_a_422(clients, fleet, problem, path, change):
    clients.ada.post(f"{API}/calibrations/", calibration(fleet), headers=KEY)
    problem(clients.ada.post(API + path, calibration(fleet, **change), headers=KEY), 422, "idempotency-mismatch")
    assert Calibration.objects.count() == 1


def test_every_value_of_a_repeated_form_field_counts(clients, fleet, problem):
    def send(scopes):
        return clients.ada.post(f"{API}/tokens/", {"name": "t", "scopes": scopes}, format="multipart", headers=KEY)

    assert send(["read", "route"]).json()["scopes"] == ["read", "route"]
    problem(send(["plan", "route"]), 422, "idempotency-mismatch")


def test_another_persons_key_is_another_key(clients, cast, fleet):
    clients.ada.post(f"{API}/calibrations/", calibration(fleet), headers=KEY)
    assert clients.root.post(f"{API}/calibrations/", calibration(fleet, q_cap=9), headers=KEY).status_code == 201


def test_one_token_is_never_given_the_answer_of_another(clients, cast, fleet, other_fleet, problem):
    body = calibration(other_fleet)
    assert clients.token(cast.ada).post(f"{API}/calibrations/", body, headers=KEY).status_code == 201
    bound = clients.token(cast.ada, fleet=fleet)
    problem(bound.post(f"{API}/calibrations/", body, headers=KEY), 422, "idempotency-mismatch")


def test_a_request_whose_first_is_still_running_is_a_409(clients, cast, fleet, problem):
    clients.ada.post(f"{API}/calibrations/", calibration(fleet), headers=KEY)
    IdempotencyRecord.objects.update(status=None, body=None)
    problem(clients.ada.post(f"{API}/calibrations/", calibration(fleet), headers=KEY), 409, "in-progress")
    IdempotencyRecord.objects.update(created_at=timezone.now() - dt.timedelta(minutes=6))  # it never came back
    assert clients.ada.post(f"{API}/calibrations/", calibration(fleet), headers=KEY).status_code == 201


@pytest.mark.django_db(transaction=True)
def test_of_many_equal_requests_at_once_one_is_done(clients, cast, fleet):
    client, statuses = clients.token(cast.ada), []
    gate = threading.Barrier(6)

    def send():
        gate.wait()
        statuses.append(client.post(f"{API}/calibrations/", calibration(fleet), headers=KEY).status_code)
        connection.close()

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {201, 409}
    assert 201 in statuses
    assert Calibration.objects.count() == 1


def test_an_internal_error_is_not_stored_for_a_repeat(clients, cast, fleet):
    plan = make.built_plan(cast, fleet)
    with pgtrigger.ignore("planner.Plan:built_is_final"):  # a row that was altered by hand
        Plan.objects.filter(pk=plan.pk).update(summary={})
    client = clients.ada
    client.raise_request_exception = False
    assert client.post(f"{API}/gates/", {"plan": plan.pk}, headers=KEY).status_code == 500
    assert not IdempotencyRecord.objects.exists()
    with pgtrigger.ignore("planner.Plan:built_is_final"):
        Plan.objects.filter(pk=plan.pk).update(summary=plan.summary)
    assert client.post(f"{API}/gates/", {"plan": plan.pk}, headers=KEY).status_code == 201


def test_an_upload_is_recognised_by_its_bytes(clients, fleet, problem):
    def send(content):
        file = SimpleUploadedFile("rates.csv", content)
        body = {"fleet": fleet.slug, "file": file}
        return clients.ada.post(f"{API}/workloads/", body, format="multipart", headers=KEY)

    first = send(b"key,rate\na,1\n")
    again = send(b"key,rate\na,1\n")
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert Workload.objects.count() == 1
    problem(send(b"key,rate\na,2\n"), 422, "idempotency-mismatch")


def test_a_stale_change_may_be_sent_again_with_a_new_version_under_a_new_key_only(clients, cast, fleet, problem):
    plan = make.replayed_plan(cast, fleet)
    url = f"{API}/plans/{plan.pk}/submit/"
    problem(clients.ada.post(url, headers={**KEY, "If-Match": '"0"'}), 412, "stale-version")
    fresh = f'"{plan.version}"'
    problem(clients.ada.post(url, headers={**KEY, "If-Match": fresh}), 422, "idempotency-mismatch")
    assert clients.ada.post(url, headers={"Idempotency-Key": "order-2", "If-Match": fresh}).status_code == 200


def test_the_secret_of_a_token_is_not_kept_for_a_repeat(clients, cast):
    body = {"name": "router", "scopes": ["route"]}
    first = clients.ada.post(f"{API}/tokens/", body, headers=KEY).json()
    again = clients.ada.post(f"{API}/tokens/", body, headers=KEY).json()
    assert first.pop("token").startswith("crt_")
    assert again == first
    assert "token" not in IdempotencyRecord.objects.get().body
    assert ApiToken.objects.count() == 1
