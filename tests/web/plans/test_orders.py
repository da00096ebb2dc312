"""The form that orders a plan, and the figures of its table on its page."""

from __future__ import annotations

import json

import pgtrigger
import pytest
from django.urls import reverse

from planner.models import Fleet, Plan
from tests import factories as make
from tests.factories import Cast
from tests.web.conftest import texts

pytestmark = pytest.mark.django_db
CSV = "key,rate,tenant,prefix_tokens\na,3,acme,100\nb,2,acme:eu,200\nc,1,bolt,300\n"


@pytest.fixture
def order(sign_in, cast: Cast, fleet: Fleet):
    """Send the form for a small workload that knows tenants and prefix lengths."""
    workload, calibration = make.import_rates(cast, fleet, CSV), make.make_calibration(cast, fleet)
    client, address = sign_in(cast.ada), reverse("plan-new", args=[fleet.slug])

    def send(**fields: object):
        return client.post(address, {"workload": workload.pk, "calibration": calibration.pk, **fields}, follow=True)

    return send


def page_of(sign_in, cast: Cast, plan: Plan):
    page = sign_in(cast.vera).get(reverse("plan", args=[plan.fleet.slug, plan.number]))
    assert page.status_code == 200
    return page, page.content.decode()


def test_tenants_are_written_a_line_each_and_the_last_colon_ends_the_name(order, fleet: Fleet) -> None:
    page = order(admission="exact", tenant_quota="acme: 3\n\n acme:eu : 2\n", tenant_floor="bolt:1")
    assert texts(page)[0].startswith("Plan 1 is ordered")
    parameters = fleet.plans.latest("id").parameters
    assert parameters["tenant_quota"] == {"acme": 3, "acme:eu": 2}
    assert parameters["tenant_floor"] == {"bolt": 1}
    assert parameters["admission"] == "exact"


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("acme: 3\nbolt", "Line 2: write a tenant, a colon and its slots, such as acme: 40."),
        ("acme: many", "Line 1: 'many' is not a whole number of slots."),
        ("acme: -3", "Line 1: '-3' is not a whole number of slots."),
        ("acme: 1\nacme: 2", "Line 2: 'acme' is listed twice. List each tenant once."),
    ],
)
def test_a_wrong_line_is_named_and_the_options_stay_unfolded(order, fleet: Fleet, lines: str, fault: str) -> None:
    page = order(tenant_quota=lines)
    assert page.status_code == 400
    assert page.context["form"].errors["tenant_quota"] == [fault]
    assert '<details class="advanced" open>' in page.content.decode()
    assert not fleet.plans.filter(kind="cacheroute").exists()


def test_a_refusal_of_the_service_is_shown_beside_its_field(order) -> None:
    page = order(tenant_quota="nobody: 3")
    assert page.status_code == 400
    assert page.context["form"].errors["tenant_quota"][0].endswith("has no tenant 'nobody'")
    page = order(tenant_floor="acme: 100000")
    assert "slots are reserved and the fleet has" in page.context["form"].errors["tenant_floor"][0]


def test_advanced_options_are_closed_at_first(sign_in, cast: Cast, fleet: Fleet) -> None:
    make.built_plan(cast, fleet)
    page = sign_in(cast.ada).get(reverse("plan-new", args=[fleet.slug]))
    body = page.content.decode()
    assert '<details class="advanced"><summary>' in body
    assert body.index('name="incumbent"') < body.index("<details") < body.index('name="tenant_quota"')
    assert page.context["form"]["incumbent"].value() is None  # Flat-LB is live: there is nothing to keep


def test_the_live_plan_is_the_default_incumbent(sign_in, cast: Cast, fleet: Fleet) -> None:
    live = make.approved_plan(cast, fleet)
    make.activate(cast, make.canary(cast, fleet, live))
    page = sign_in(cast.ada).get(reverse("plan-new", args=[fleet.slug]))
    assert page.context["form"]["incumbent"].value() == live.pk
    assert f'<option value="{live.pk}" selected>Plan 1: ' in page.content.decode()


def test_a_replan_is_ordered_with_its_two_numbers_and_from_scratch_needs_none(order, cast: Cast, fleet: Fleet) -> None:
    base = make.built_plan(cast, fleet)
    order(incumbent=base.pk, max_imbalance_factor="1.1", max_moved_share="0.2")
    plan = fleet.plans.latest("id")
    assert (plan.incumbent, plan.parameters["max_imbalance_factor"]) == (base, 1.1)
    assert plan.parameters["max_moved_share"] == 0.2
    order(incumbent="", max_imbalance_factor="", max_moved_share="")
    plan = fleet.plans.latest("id")
    assert (plan.incumbent, plan.parameters["max_imbalance_factor"]) == (None, None)
    page = order(incumbent=base.pk, max_imbalance_factor="0.5")
    assert page.context["form"].errors["max_imbalance_factor"] == [
        "A multiple of the fresh plan's max/mean, at least 1"
    ]


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("max_imbalance_factor", "1.02", "This option needs an incumbent"),
        ("max_moved_share", "0", "This option needs an incumbent"),
        ("max_moved_share", "a tenth", "Enter a number"),
    ],
)
def test_replan_options_of_a_new_plan_are_refused_at_their_fields(
    order, fleet: Fleet, field: str, value: str, fault: str
) -> None:
    page = order(incumbent="", **{field: value})
    assert page.status_code == 400
    (error,) = page.context["form"].errors[field]
    assert error.startswith(fault)
    assert error in page.content.decode()
    assert not fleet.plans.filter(kind="cacheroute").exists()


def test_the_form_sends_no_number_of_a_replan_unless_somebody_writes_one(sign_in, cast: Cast, fleet: Fleet) -> None:
    make.built_plan(cast, fleet)
    form = sign_in(cast.ada).get(reverse("plan-new", args=[fleet.slug])).context["form"]
    assert [form[name].value() for name in form.REPLAN] == [None, None]
    assert 'placeholder="1.02"' in str(form["max_imbalance_factor"])


def test_a_plan_of_another_fleet_or_without_a_table_cannot_be_chosen(order, cast: Cast, fleet: Fleet) -> None:
    other = make.built_plan(cast, make.make_fleet(cast, "beta"))
    for plan in (other, fleet.plans.get(kind="flat")):
        assert "incumbent" in order(incumbent=plan.pk).context["form"].errors


def test_the_page_names_the_worst_loss(sign_in, cast: Cast, fleet: Fleet) -> None:
    fleet.destinations.filter(index=2).update(weight=3.0)
    plan = make.built_plan(cast, fleet)
    page, body = page_of(sign_in, cast, plan)
    found = page.context["facts"]["losses"]
    names = dict(fleet.destinations.values_list("index", "name"))
    assert found["worst"]["name"] == names[plan.summary["worst_loss_destination"]]
    assert found["worst"]["after"] == plan.summary["worst_loss"]
    assert {row["name"]: row["after"] for row in found["shown"]} == dict(
        zip(names.values(), plan.summary["after_loss"], strict=True)
    )
    assert f"The worst case is the loss of <b>{found['worst']['name']}</b>" in body
    assert body.count("! worst</span>") == 1


def test_many_destinations_show_the_worst_losses_and_count_the_others(sign_in, cast: Cast, fleet: Fleet) -> None:
    for n in range(4, 24):
        fleet.destinations.create(index=n, name=f"d{n}", url="http://127.0.0.1")
    page, body = page_of(sign_in, cast, make.built_plan(cast, fleet))
    found = page.context["facts"]["losses"]
    after = [row["after"] for row in found["shown"]]
    assert (len(after), found["more"]) == (20, 4)
    assert after == sorted(page.context["plan"].summary["after_loss"], reverse=True)[:20]
    assert "4 more rows, none worse" in body


def test_a_single_destination_has_no_loss_table(sign_in, cast: Cast, fleet: Fleet) -> None:
    fleet.destinations.exclude(index=1).update(state="down")
    _, body = page_of(sign_in, cast, make.built_plan(cast, fleet))
    assert "d1 is the only destination" in body


def test_the_page_shows_warm_slots_by_tenant_and_the_quality_of_the_admission(
    order, sign_in, cast: Cast, fleet: Fleet
) -> None:
    order(admission="exact", tenant_quota="bolt: 1")
    plan, job = fleet.plans.latest("id"), fleet.jobs.latest("id")
    make.build(job)
    plan.refresh_from_db()
    page, body = page_of(sign_in, cast, plan)
    assert "Warm slots by tenant" in body
    rows = {row["name"]: row for row in page.context["facts"]["tenants"]["rows"]}
    assert (rows["bolt"]["quota"], rows["acme"]["quota"]) == (1, None)
    assert page.context["facts"]["admission"] == (
        "Exact: the set of keys that saves most within the budget. 1,000 prefill tokens/s are saved; this equals the "
        "upper bound on any choice of keys."
    )


def test_the_page_of_a_replan_shows_moved_and_removed_keys(sign_in, cast: Cast, fleet: Fleet) -> None:
    rates = {f"k{n}": 3.0 - n / 10 for n in range(20)}
    text = "key,rate\n" + "".join(f"{key},{rate}\n" for key, rate in rates.items())
    base = make.built_plan(cast, fleet, workload=make.import_rates(cast, fleet, text))
    fleet.destinations.filter(index=3).update(state="draining")
    later = make.import_rates(cast, fleet, text.replace("k5,", "other,"))
    plan = make.built_plan(cast, fleet, workload=later, incumbent=base)
    page, body = page_of(sign_in, cast, plan)
    moves = page.context["facts"]["moves"]
    assert moves["moved_keys"] == plan.summary["moved_keys"] >= 4
    assert f"<b>{moves['moved_keys']} keys</b> lose a destination where they are warm" in " ".join(body.split())
    assert "1 keys of the incumbent" in body
    assert "unknown (lengths not in this workload)" in body
    assert reverse("plan", args=[fleet.slug, base.number]) in body
    same = make.built_plan(cast, fleet, workload=later, incumbent=plan)
    assert "No warm key changes its destination." in page_of(sign_in, cast, same)[1]


def test_a_plan_from_before_these_figures_still_has_its_page(sign_in, cast: Cast, fleet: Fleet) -> None:
    plan = make.built_plan(cast, fleet)
    old = (
        "keys", "admitted", "admitted_rate", "admitted_share", "replicated", "cannot_fit", "slots_used", "imbalance",
        "load", "top_keys", "build_ms",
    )  # fmt: skip
    with pgtrigger.ignore("planner.Plan:built_is_final"):
        Plan.objects.filter(pk=plan.pk).update(summary={name: plan.summary[name] for name in old})
    page, body = page_of(sign_in, cast, plan)
    assert "built by an earlier version" in body
    assert page.context["facts"]["admission"] == "By rate: the busiest keys first."
    assert "Moves from" not in body
    assert "Warm slots by tenant" not in body
    assert json.dumps(page.context["facts"]["top_keys"][0]["destinations"])
