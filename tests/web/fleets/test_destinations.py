"""The pages of a fleet's destinations."""

from __future__ import annotations

import pytest
from django.urls import reverse

from planner.models import Fleet
from tests import factories as make
from tests.factories import Cast
from tests.web.conftest import texts

pytestmark = pytest.mark.django_db


def test_lines_are_added_as_destinations(sign_in, cast: Cast, fleet: Fleet) -> None:
    root, address = sign_in(cast.root), reverse("destinations-add", args=[fleet.slug])
    assert f'href="{address}"' in root.get(reverse("fleet", args=[fleet.slug])).content.decode()
    assert f'name="expected_version" value="{fleet.version}"' in root.get(address).content.decode()
    form = {"destinations": "d4 http://10.0.0.4:8000\n\n  d5 http://10.0.0.5:8000 2.5 \n", "expected_version": 1}
    page = root.post(address, form, follow=True)
    assert page.redirect_chain == [(reverse("fleet", args=[fleet.slug]) + "#destinations", 302)]
    assert texts(page) == [
        "2 destinations were added. Flat-LB uses new destinations at once. To place warm keys there, order a new plan."
    ]
    rows = fleet.destinations.filter(index__gte=4).order_by("index")
    assert list(rows.values_list("index", "name", "weight")) == [(4, "d4", 1.0), (5, "d5", 2.5)]
    page = root.post(address, {**form, "destinations": "d6 http://10.0.0.6:8000"})
    assert page.status_code == 412
    assert "another user changed this" in page.content.decode()


def test_every_wrong_line_is_named(sign_in, cast: Cast, fleet: Fleet) -> None:
    lines = ["a http://a", "b", "c c:8000", "d http://d fast", "e http://e 0", "f http://f nan", "g http://g 1e9", "",
             "a http://a2", "h http://h inf", "i http://i 1 2",
             "j http://j:0", "k http://k 1_0", "l\u200b http://l"]  # fmt: skip
    page = sign_in(cast.root).post(
        reverse("destinations-add", args=[fleet.slug]), {"destinations": "\r\n".join(lines), "expected_version": 1}
    )
    assert page.status_code == 400
    assert page.context["form"].errors["destinations"] == [
        "Line 2: write a name and a URL, separated by a space; a speed may follow.",
        "Line 3: 'c:8000' is not an http or https URL.",
        "Line 4: 'fast' is not a speed from 0.01 to 100.",
        "Line 5: '0' is not a speed from 0.01 to 100.",
        "Line 6: 'nan' is not a speed from 0.01 to 100.",
        "Line 7: '1e9' is not a speed from 0.01 to 100.",
        "Line 9: the name 'a' is also on line 1; names must be unique.",
        "Line 10: 'inf' is not a speed from 0.01 to 100.",
        "Line 11: write a name and a URL, separated by a space; a speed may follow.",
        "Line 12: 'http://j:0' is not an http or https URL.",
        "2 more lines have errors.",
    ]
    assert fleet.destinations.count() == 4


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("k http://k 1_0", "'1_0' is not a speed from 0.01 to 100."),
        ("l\u200b http://l", "the name 'l\\u200b' contains invisible characters; remove them."),
        ("m http://ada:secret@m", "write the URL without user and password: routers and the audit trail show it."),
        ("n" * 121 + " http://n", "destination names have 1 to 120 characters."),
    ],
)
def test_a_line_is_held_to_the_rule_of_the_service(sign_in, cast: Cast, fleet: Fleet, line: str, fault: str) -> None:
    form = {"destinations": f"d4 http://d4\n{line}", "expected_version": 1}
    page = sign_in(cast.root).post(reverse("destinations-add", args=[fleet.slug]), form)
    assert page.context["form"].errors["destinations"] == [f"Line 2: {fault}"]


def test_many_wrong_lines_are_counted_after_ten(sign_in, cast: Cast, fleet: Fleet) -> None:
    form = {"destinations": "x\n" * 300, "expected_version": 1}
    errors = sign_in(cast.root).post(reverse("destinations-add", args=[fleet.slug]), form).context["form"].errors
    assert len(errors["destinations"]) == 11
    assert errors["destinations"][-1] == "290 more lines have errors."


def test_a_name_that_the_fleet_has_is_refused_beside_the_lines(sign_in, cast: Cast, fleet: Fleet) -> None:
    form = {"destinations": "d0 http://10.0.0.4:8000", "expected_version": 1}
    page = sign_in(cast.root).post(reverse("destinations-add", args=[fleet.slug]), form)
    assert page.status_code == 409
    assert page.context["form"].errors["destinations"] == ["This fleet already has a destination named 'd0'"]
    page = sign_in(cast.root).post(reverse("destinations-add", args=[fleet.slug]), {"destinations": " \n"})
    assert page.status_code == 400
    assert "destinations" in page.context["form"].errors


def test_a_speed_is_set_and_shown_where_it_is_not_one(sign_in, cast: Cast, fleet: Fleet) -> None:
    root, address = sign_in(cast.root), reverse("destination-speed", args=[fleet.slug, 1])
    page = root.post(address, {"weight": "2", "expected_version": "1"}, follow=True)
    assert texts(page)[0].startswith("The speed of d1 is now 2.")
    assert page.content.decode().count("speed ×") == 1
    assert "speed ×2<" in sign_in(cast.vera).get(reverse("fleet", args=[fleet.slug])).content.decode()
    page = root.post(address, {"weight": "2", "expected_version": "2"}, follow=True)
    assert texts(page) == ["The speed of d1 is already 2. Nothing changed."]
    page = root.post(address, {"weight": "3", "expected_version": "1"})
    assert page.status_code == 412
    assert fleet.destinations.get(index=1).weight == 2
    assert root.get(reverse("destination-speed", args=[fleet.slug, 99])).status_code == 404


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "1e9", "1e400", "fast", "", "1_0"])
def test_an_invalid_speed_is_refused_at_its_field(sign_in, cast: Cast, fleet: Fleet, weight: str) -> None:
    address = reverse("destination-speed", args=[fleet.slug, 1])
    page = sign_in(cast.root).post(address, {"weight": weight, "expected_version": "1"})
    assert page.status_code == 400
    assert "weight" in page.context["form"].errors
    assert fleet.destinations.get(index=1).weight == 1


@pytest.mark.parametrize("who", ["vera", "ada", "grace", "linus"])
def test_accounts_without_the_right_to_manage_do_not_see_these_pages(
    sign_in, cast: Cast, fleet: Fleet, who: str
) -> None:
    client = sign_in(getattr(cast, who))
    addresses = [reverse("destinations-add", args=[fleet.slug]), reverse("destination-speed", args=[fleet.slug, 1])]
    body = client.get(reverse("fleet", args=[fleet.slug])).content.decode()
    for address in addresses:
        assert address not in body
        assert client.get(address).status_code == 403
        assert client.post(address, {"weight": "2", "destinations": "d4 http://d4"}).status_code == 403
    assert fleet.destinations.count() == 4


def test_a_new_fleet_takes_speeds_too(sign_in, cast: Cast) -> None:
    destinations = "a http://10.0.0.1:8000\nb http://10.0.0.2:8000 2"
    form = make.policy_form(slug="gamma", name="Gamma", engine_profile="llama-3.1-8b-h100", destinations=destinations)
    sign_in(cast.root).post(reverse("fleet-new"), form)
    rows = Fleet.objects.get(slug="gamma").destinations.order_by("index")
    assert list(rows.values_list("name", "weight")) == [("a", 1.0), ("b", 2.0)]
