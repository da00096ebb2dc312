"""Ordering plans by the API: every option, and a pointer to each that cannot be used."""

from urllib.parse import urlencode

import pytest

from planner.models import Plan
from planner.tasks import run_job
from tests import factories as make

pytestmark = pytest.mark.django_db
ADDRESS = "/api/v1/plans/"
CSV = "key,rate,tenant,prefix_tokens\na,3,acme,100\nb,2,acme,200\nc,1,bolt,300\n"


@pytest.fixture
def order(clients, cast, fleet):
    """Order a plan of a small workload with a planner's token."""
    workload, calibration = make.import_rates(cast, fleet, CSV), make.make_calibration(cast, fleet)
    token = clients.token(cast.ada)

    def post(**body):
        whole = {"fleet": fleet.slug, "workload": workload.pk, "calibration": calibration.pk, **body}
        return token.post(ADDRESS, whole, format="json")

    return post


def built(response):
    assert response.status_code == 202, response.content
    run_job(response.json()["job"])
    return Plan.objects.get(pk=response.json()["plan"])


def test_every_option_is_taken_and_shown(order, clients, cast):
    options = {
        "admission": "density", "balance_target": 1.5, "slots_per_destination": 3, "tokens_per_destination": 5_000,
        "tenant_quota": {"acme": 6}, "tenant_floor": {"bolt": 1, "acme": 2},
    }  # fmt: skip
    plan = built(order(**options))
    shown = clients.vera.get(f"{ADDRESS}{plan.pk}/").json()
    assert {name: shown["parameters"][name] for name in options} == options
    assert shown["incumbent"] is None
    assert shown["summary"]["admission"] == "density"
    assert {row["tenant"] for row in shown["summary"]["tenants"]} == {"acme", "bolt"}
    assert len(shown["summary"]["after_loss"]) == 4


def test_a_replan_names_its_incumbent(order, clients, cast):
    first = built(order())
    second = built(order(incumbent=first.pk, max_imbalance_factor=1.1, max_moved_share=0.25))
    shown = clients.vera.get(f"{ADDRESS}{second.pk}/").json()
    assert shown["incumbent"] == first.pk
    assert shown["parameters"]["incumbent"] == shown["summary"]["incumbent"] == first.number
    assert (shown["parameters"]["max_imbalance_factor"], shown["parameters"]["max_moved_share"]) == (1.1, 0.25)
    assert (shown["summary"]["moved_keys"], shown["summary"]["moved_share"]) == (0, 0.0)


@pytest.mark.parametrize(
    ("option", "pointer"),
    [
        ({"admission": "by lot"}, "/admission"),
        ({"tokens_per_destination": 0}, "/tokens_per_destination"),
        ({"tenant_quota": {"acme": "many"}}, "/tenant_quota/acme"),
        ({"tenant_quota": {"acme": -1}}, "/tenant_quota/acme"),
        ({"tenant_quota": {"nobody": 1}}, "/tenant_quota"),
        ({"tenant_quota": [1]}, "/tenant_quota"),
        ({"tenant_floor": {"nobody": 1}}, "/tenant_floor"),
        ({"tenant_floor": {"acme": 10**6}}, "/tenant_floor"),
        ({"incumbent": 10**6}, "/incumbent"),
        ({"max_imbalance_factor": 1.1}, "/max_imbalance_factor"),
        ({"max_moved_share": 0.1}, "/max_moved_share"),
        ({"max_moved_share": 2}, "/max_moved_share"),
    ],
)
def test_an_option_that_cannot_be_used_is_pointed_to(order, problem, option, pointer):
    problem(order(**option), 400, "invalid", pointer)
    assert not Plan.objects.filter(kind="cacheroute").exists()


def test_flat_lb_cannot_be_replanned(order, fleet, problem):
    problem(order(incumbent=fleet.plans.get(kind="flat").pk), 400, "invalid", "/incumbent")


def test_a_token_of_one_fleet_replans_no_plan_of_another(clients, cast, fleet, other_fleet):
    theirs = make.built_plan(cast, other_fleet)
    workload, calibration = make.import_rates(cast, fleet, CSV), make.make_calibration(cast, fleet)
    token = clients.token(cast.ada, fleet=fleet)
    body = {"fleet": fleet.slug, "workload": workload.pk, "calibration": calibration.pk, "incumbent": theirs.pk}
    response = token.post(ADDRESS, body, format="json")
    assert response.status_code in (403, 404)
    assert not fleet.plans.filter(kind="cacheroute").exists()


def test_a_form_sends_slots_by_tenant_after_a_dot_and_a_bare_text_is_refused(clients, cast, fleet, problem):
    workload, calibration = make.import_rates(cast, fleet, CSV), make.make_calibration(cast, fleet)
    body = {"fleet": fleet.slug, "workload": workload.pk, "calibration": calibration.pk}
    token = clients.token(cast.ada)
    problem(
        token.post(ADDRESS, {**body, "tenant_quota": '{"acme": 2}'}, format="multipart"),
        400,
        "invalid",
        "/tenant_quota",
    )
    plan = built(token.post(ADDRESS, {**body, "tenant_quota.acme": "2"}, format="multipart"))
    assert plan.parameters["tenant_quota"] == {"acme": 2}


ODD = "key,rate,tenant\na,3,\nb,2,bolt\nc,1,a.b\n"


@pytest.fixture
def form(clients, cast, fleet):
    """Order a plan by a form, of a workload whose tenants have odd names."""
    workload, calibration = make.import_rates(cast, fleet, ODD), make.make_calibration(cast, fleet)
    token = clients.token(cast.ada)

    def post(*fields):
        whole = [("fleet", fleet.slug), ("workload", workload.pk), ("calibration", calibration.pk), *fields]
        return token.post(ADDRESS, urlencode(whole), content_type="application/x-www-form-urlencoded")

    return post


def test_a_form_names_tenants_with_any_characters_also_with_none(form):
    sent = {"": 3, "a.b": 2}
    fields = [(f"tenant_quota.{name}", count) for name, count in sent.items()]
    plan = built(form(*fields, ("tenant_floor.a.b", 1)))
    assert plan.parameters["tenant_quota"] == sent
    assert plan.parameters["tenant_floor"] == {"a.b": 1}


def test_a_line_break_in_a_tenant_of_a_form_is_read_as_part_of_its_name(form, problem):
    told = problem(form(("tenant_quota.a.b\nc", 3)), 400, "invalid", "/tenant_quota")
    assert r"no tenant 'a.b\nc'" in told["detail"]


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ([("tenant_quota[a.b]", 3)], "/tenant_quota[a.b]"),
        ([("tenant_quotas.a.b", 3)], "/tenant_quotas.a.b"),
        ([("tenant_floors", 3)], "/tenant_floors"),
        ([("tenant_quota.a.b", 3), ("tenant_quota.a.b", 9)], "/tenant_quota/a.b"),
        ([("tenant_quota.", 3), ("tenant_quota.", 3)], "/tenant_quota/"),
        ([("tenant_floor.a.b", "many")], "/tenant_floor/a.b"),
        ([("tenant_floor", ""), ("tenant_floor.a.b", 1)], "/tenant_floor"),
    ],
)
def test_slots_in_a_form_are_taken_or_refused_and_never_dropped(form, problem, fields, pointer):
    problem(form(*fields), 400, "invalid", pointer)
    assert not Plan.objects.filter(kind="cacheroute").exists()


def test_a_stray_field_of_json_is_refused_too(order, problem):
    problem(order(tenant_quotas={"acme": 3}), 400, "invalid", "/tenant_quotas")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"tenant_quota": {"acme": 3, "acme": 9}}', "the name 'acme' is duplicate"),
        ('{"fleet": "alpha", "fleet": "beta"}', "the name 'fleet' is duplicate"),
        ('{"max_moved_share": NaN}', "NaN is not JSON"),
        ('{"fleet": ', "JSON parse error"),
    ],
)
def test_json_that_can_be_read_in_two_ways_is_refused(clients, cast, problem, body, words):
    token = clients.token(cast.ada)
    assert words in problem(token.post(ADDRESS, body, content_type="application/json"), 400, "parse-error")["detail"]
