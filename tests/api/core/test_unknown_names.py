"""A misspelt field or filter is refused, not ignored."""

import pytest

from planner.models import Plan
from tests import factories as make

pytestmark = pytest.mark.django_db
API = "/api/v1"


@pytest.fixture
def ready_to_plan(cast, fleet):
    workload, calibration = make.make_workload(cast, fleet), make.make_calibration(cast, fleet)
    return {"fleet": fleet.slug, "workload": workload.pk, "calibration": calibration.pk}


def test_a_misspelt_option_of_a_plan_is_refused_and_nothing_is_ordered(clients, problem, ready_to_plan):
    body = {**ready_to_plan, "balance_targt": 1.5}
    found = problem(clients.ada.post(f"{API}/plans/", body, content_type="application/json"), 400, "invalid")
    assert found["errors"][0]["pointer"] == "/balance_targt"
    assert "balance_target" in found["errors"][0]["detail"]
    assert not Plan.objects.exclude(kind="flat").exists()
    body.pop("balance_targt")
    assert clients.ada.post(f"{API}/plans/", body, content_type="application/json").status_code == 202


def test_nested_names_of_a_form_are_known(clients, ready_to_plan):
    response = clients.ada.post(f"{API}/plans/", {**ready_to_plan, "replay.requests": 500})
    assert response.status_code == 202


def test_a_misspelt_filter_is_refused_and_does_not_answer_with_everything(clients, fleet, problem):
    found = problem(clients.vera.get(f"{API}/destinations/?fleet=prod"), 400, "invalid")
    assert found["errors"][0]["pointer"] == "/fleet"
    assert "fleet__slug" in found["errors"][0]["detail"]
    assert clients.vera.get(f"{API}/destinations/?fleet__slug={fleet.slug}&page_size=2").status_code == 200
