"""The page that explains a plan, and the study that is run from it."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from planner.models import Fleet, Job, Plan
from planner.services.calibrations import calibrations
from planner.services.jobs.jobs import claimed
from planner.services.plans import studies
from planner.tasks import run_job
from tests import factories as make
from tests.factories import Cast
from tests.web.conftest import texts

pytestmark = pytest.mark.django_db
CSV = 'key,rate\nbig,9\nmid,3\nsmall,2\n"t<a>il&1",1.5\nlast,0.5\n'


@pytest.fixture
def plan(cast: Cast, fleet: Fleet) -> Plan:
    calibration = make.make_calibration(cast, fleet, q_cap=5.0)
    workload = make.import_rates(cast, fleet, CSV)
    return make.built_plan(cast, fleet, workload=workload, calibration=calibration, slots_per_destination=1)


def address(plan: Plan, name: str = "plan-explain") -> str:
    return reverse(name, args=[plan.fleet.slug, plan.number])


@pytest.fixture
def look(sign_in, cast: Cast, plan: Plan):
    """The page as Vera sees it, who may only look."""
    client = sign_in(cast.vera)

    def get(**query: str):
        response = client.get(address(plan), query)
        return response, response.content.decode()

    return get


def studied(plan: Plan, client: Client) -> Job:
    client.post(address(plan, "study-order"))
    job = Job.objects.get(kind="study", state="queued")
    run_job(job.pk)
    return job


def test_the_plan_links_to_its_explanation_and_flat_lb_has_none(sign_in, cast: Cast, fleet: Fleet, plan: Plan) -> None:
    client = sign_in(cast.vera)
    assert f'href="{address(plan)}"' in client.get(address(plan, "plan")).content.decode()
    flat = fleet.plans.get(kind="flat")
    assert address(flat) not in client.get(address(flat, "plan")).content.decode()
    assert "has no routing table, so no explanation is available" in client.get(address(flat)).content.decode()


def test_a_key_is_explained_with_its_sentence_and_facts(look) -> None:
    page, body = look(key="small")
    assert page.status_code == 200
    assert "small has rank 3 of 5 by rate" in body
    assert "the lightest then with 0.5 requests/s" in body
    assert "<td>next best: d2</td>" in body
    assert 'value="small"' in body


def test_a_key_that_is_not_warm_shows_the_figures_of_the_reason(look) -> None:
    page, body = look(key="t<a>il&1")
    assert page.context["reason"] == "all slots were taken before its rank"
    assert ("Keys before it", 3) in page.context["figures"]
    assert "t&lt;a&gt;il&amp;1 has rank 4 of 5" in body
    assert "t<a>il" not in body


def test_a_destination_is_chosen_from_those_of_the_plan_and_its_keys_lead_on(look) -> None:
    _, body = look()
    assert re.findall(r'<option value="(d\d)">\1</option>', body) == ["d0", "d1", "d2", "d3"]
    _, body = look(destination="d2")
    assert "d2 carries 3.5 requests/s" in body
    assert '<option value="d2" selected>d2</option>' in body
    assert 'href="?key=mid"' in body


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({"key": "bgi"}, 400, "This plan has no key named &#x27;bgi&#x27;; the closest: big"),
        ({"destination": "d9"}, 400, "This plan has no destination named"),
        ({"key": "big", "destination": "d0"}, 400, "Give either a key or a destination"),
        ({"key": "", "destination": ""}, 200, "Placement of keys"),
        ({"key": "x\0"}, 400, "no key named"),
        ({"head": "99", "metric": "nonsense"}, 200, "No study yet"),
    ],
)
def test_the_page_names_the_reason_without_an_explanation(look, query: dict[str, str], status: int, words: str) -> None:
    page, body = look(**query)
    assert page.status_code == status
    assert words in body


def test_simulated_inputs_are_labelled_and_measured_ones_are_not(sign_in, cast: Cast, fleet: Fleet, look) -> None:
    _, body = look()
    assert "≈" not in body
    workload = make.make_workload(cast, fleet)
    calibration = calibrations.simulate_calibration(acting_user=cast.ada, fleet=fleet, workload=workload)
    other = make.built_plan(cast, fleet, workload=workload, calibration=calibration)
    body = sign_in(cast.vera).get(address(other)).content.decode()
    assert body.count("simulated: simulated calibration") == 2  # on top, and beside the study


def test_a_planner_runs_the_study_and_reads_its_grid(sign_in, cast: Cast, fleet: Fleet, plan: Plan, look) -> None:
    client = sign_in(cast.ada)
    assert "Run study" in client.get(address(plan)).content.decode()
    assert ">Run study<" not in look()[1]
    page = client.post(address(plan, "study-order"), follow=True)
    assert texts(page) == [f"The study of {plan} is ordered. It starts when a worker is free."]
    body = page.content.decode()
    assert 'id="study-progress"' in body
    assert ">Run study<" not in body
    fragment = client.get(address(plan, "study-progress"))
    assert "0 of 6 steps" in fragment.content.decode()
    assert "HX-Refresh" not in fragment
    run_job(Job.objects.get(kind="study").pk)
    assert client.get(address(plan, "study-progress"))["HX-Refresh"] == "true"
    page, body = look()
    grid = page.context["grid"]
    assert [(factor, q_cap) for factor, q_cap, _ in grid["columns"]] == [
        (0.75, 3.75), (0.9, 4.5), (1.0, 5.0), (1.1, 5.5), (1.25, 6.25),
    ]  # fmt: skip
    assert [row["slots"] for row in grid["rows"]] == [3, 3, 4, 4, 5]
    assert sum(cell["is_base"] for row in grid["rows"] for cell in row["cells"]) == 1
    assert grid["rows"][2]["cells"][2]["is_base"]
    assert body.count("base:</span> 87.5%") == 1
    worse = grid["rows"][0]["cells"][2]  # three slots: big and mid alone
    assert (worse["value"], worse["tone"]) == (12 / 16, "much-worse")
    body = client.get(address(plan)).content.decode()
    assert ">Run study<" not in body
    assert "Run study again" in body
    assert "Run study again" not in look()[1]


def test_a_failed_repeat_of_a_study_is_shown_with_the_earlier_grid(sign_in, cast: Cast, plan: Plan, look) -> None:
    client = sign_in(cast.ada)
    studied(plan, client)
    studied(plan, client)
    assert plan.studies.count() == 2
    client.post(address(plan, "study-order"))
    assert "Run study again" not in client.get(address(plan)).content.decode()
    with claimed(Job.objects.get(kind="study", state="queued").pk) as job:
        studies.study_failed(job, message="the rates are gone", crashed=False)
    page, body = look()
    assert page.context["study"] == plan.studies.first()
    assert re.search(r"The latest study failed, <time [^>]*>[^<]*</time>: the rates are gone", body)
    assert "The figures below are from an earlier study." in body
    assert page.context["grid"]["rows"]
    assert "Run study again" in client.get(address(plan)).content.decode()
    studied(plan, client)
    assert "The latest study failed" not in look()[1]


def test_a_study_by_other_code_than_the_plan_is_marked(sign_in, cast: Cast, plan: Plan, look) -> None:
    studied(plan, sign_in(cast.ada))
    assert "The base of the study may differ" not in look()[1]
    study = plan.studies.first()
    study.pk, study._state.adding, study.code_version = None, True, "0.1+older"
    study.save(force_insert=True)
    body = look()[1]
    assert f"ran with code 0.1+older, the plan with {plan.code_version}" in body


@pytest.mark.parametrize(
    ("metric", "base", "tone"),
    [
        ("admitted_share", 0.875, "much-better"),
        ("imbalance", 1.25, "much-better"),
        ("worst_loss", None, ""),
        ("churn_rate", 0.0, ""),
        ("slots_used", 4, "same"),
        ("replicated", 1, "same"),
    ],
)
def test_every_figure_and_head_share_can_be_chosen(
    sign_in, cast: Cast, plan: Plan, look, metric: str, base: float | None, tone: str
) -> None:
    job = studied(plan, sign_in(cast.ada))
    settings = plan.studies.get(pk=Job.objects.get(pk=job.pk).result["study"]).results["settings"]
    page, body = look(metric=metric, head="0", key="mid")
    grid = page.context["grid"]
    assert f'<option value="{metric}" selected>' in body
    assert '<input type="hidden" name="key" value="mid">' in body
    assert [cell["value"] for row in grid["rows"] for cell in row["cells"]] == [row[metric] for row in settings[:25]]
    if base is not None:
        assert grid["rows"][2]["cells"][2]["value"] == base
    if tone:
        assert grid["rows"][4]["cells"][2]["tone"] == tone
    page, body = look(metric=metric, head="4")
    assert "45%: it holds 56.2% already, so as measured" in body
    assert [cell["value"] for row in page.context["grid"]["rows"] for cell in row["cells"]] == [
        row[metric] for row in settings[100:]
    ]


def test_a_failed_study_shows_its_error_and_can_run_again(sign_in, cast: Cast, fleet: Fleet) -> None:
    workload = make.import_rates(cast, fleet, "key,rate,tenant\na,5,acme\nb,4,bolt\n")
    plan = make.built_plan(cast, fleet, workload=workload, slots_per_destination=1, tenant_floor={"acme": 4})
    client = sign_in(cast.ada)
    studied(plan, client)
    body = client.get(address(plan)).content.decode()
    assert ": tenant_floor[0] = 4" in body
    assert "The latest study failed, " in body
    assert "Run study" in body


def test_only_planners_order_a_study_and_only_by_post(sign_in, cast: Cast, plan: Plan) -> None:
    for person in (cast.vera, cast.grace, cast.linus):
        assert sign_in(person).post(address(plan, "study-order")).status_code == 403
    assert sign_in(cast.ada).get(address(plan, "study-order")).status_code == 405
    assert not Job.objects.filter(kind="study").exists()


def test_anonymous_users_go_to_sign_in_and_missing_plans_are_404(sign_in, cast: Cast, plan: Plan) -> None:
    for name in ("plan-explain", "study-progress"):
        response = Client().get(address(plan, name))
        assert (response.status_code, response.url) == (302, f"/login/?next={address(plan, name)}")
        missing = reverse(name, args=[plan.fleet.slug, 99])
        assert sign_in(cast.vera).get(missing).status_code == 404
    assert Client().post(address(plan, "study-order")).status_code == 302


def test_a_second_order_while_one_runs_is_a_message_and_no_second_job(sign_in, cast: Cast, plan: Plan) -> None:
    client = sign_in(cast.ada)
    client.post(address(plan, "study-order"))
    page = client.post(address(plan, "study-order"), follow=True)
    assert "already queued or running" in texts(page)[-1]
    assert Job.objects.filter(kind="study").count() == 1


def test_the_page_has_no_inline_script_or_style(look, sign_in, cast: Cast, plan: Plan) -> None:
    studied(plan, sign_in(cast.ada))
    _, body = look(key="big")
    assert not re.search(r"<script(?![^>]*\ssrc=)", body)
    assert " style=" not in body
    assert not re.search(r"\son\w+=", body)
