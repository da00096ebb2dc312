"""Error pages and problem documents of internal errors."""

from __future__ import annotations

import pytest
from django.db import OperationalError
from django.test import Client

from planner.selectors.fleets import home_page
from tests import factories as make
from tests.factories import Cast

pytestmark = pytest.mark.django_db


def broken(error: Exception):
    def raises(*_: object) -> None:
        raise error

    return raises


@pytest.fixture
def ada(cast: Cast) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(cast.ada, backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(OperationalError("gone"), 503, "database-away"), (RuntimeError("a bug"), 500, "internal-error")],
)
def test_programs_get_a_problem_document(ada: Client, monkeypatch, error, status, code) -> None:
    monkeypatch.setattr("planner.api.core.viewsets.ReadViewSet.list", broken(error))
    response = ada.get("/api/v1/fleets/")
    assert (response.status_code, response["Content-Type"]) == (status, "application/problem+json")
    assert response.json()["code"] == code
    assert "gone" not in response.content.decode()
    assert response.has_header("Retry-After") == (status == 503)


@pytest.mark.parametrize(
    ("error", "status", "words"), [(OperationalError("gone"), 503, "Routers keep"), (RuntimeError("x"), 500, "logged")]
)
def test_people_get_a_page_that_needs_no_database(ada: Client, monkeypatch, error, status, words) -> None:
    monkeypatch.setattr("planner.web.fleets.home.fleets_with_live", broken(error))
    response = ada.get("/")
    assert response.status_code == status
    assert words in response.content.decode()


def test_a_name_that_is_too_long_to_exist_is_no_500(db) -> None:
    response = Client().post("/login/", {"username": "x" * 100_000, "password": "y"})
    assert response.status_code == 200
    assert "150 characters" in str(response.context["form"].errors)


def test_an_audit_filter_at_the_end_of_time_is_no_500(ada: Client) -> None:
    assert ada.get("/audit/?until=9999-12-31").status_code == 200


@pytest.mark.parametrize("body", ["{}", "[]", "null", "nonsense", '{"output": "x.y", "inputs": []}', "[" * 10_000])
def test_a_body_that_is_no_callback_of_the_charts_is_a_400(ada: Client, body: str) -> None:
    response = ada.post("/charts/plan/_dash-update-component", body, content_type="application/json")
    assert response.status_code == 400


def test_each_job_is_shown_with_its_own_plan(cast: Cast, fleet) -> None:
    other = make.make_fleet(cast, "other")
    make.built_plan(cast, other)
    plan = make.built_plan(cast, fleet)
    make.run_replay(cast, plan)
    second = make.built_plan(cast, fleet)
    shown = [(job.kind, job.plan_number) for job in home_page.recent_jobs(fleet)]
    assert shown == [("build_plan", second.number), ("replay", plan.number), ("build_plan", plan.number)]
