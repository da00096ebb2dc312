"""Pages of a fleet with more destinations than a page can show."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from planner.models import Destination, Fleet
from tests import factories as make
from tests.factories import Cast

pytestmark = pytest.mark.django_db


@pytest.fixture
def many(cast: Cast, fleet: Fleet) -> Fleet:
    """250 destinations: d0 to d3, then n004 to n249."""
    Destination.objects.bulk_create(
        Destination(fleet=fleet, index=n, name=f"n{n:03d}", url=f"http://10.0.0.{n}:8000") for n in range(4, 250)
    )
    return fleet


@pytest.fixture
def look(sign_in, cast: Cast, many: Fleet):
    client = sign_in(cast.linus)

    def get(**query: object):
        page = client.get(reverse("fleet", args=[many.slug]), query)
        assert page.status_code == 200
        body = page.content.decode()
        panel = body[body.index('id="destinations"') : body.index('id="events-h"')]
        return re.findall(r"<tr><td>([dn]\d+)", panel), panel

    return get


def test_a_hundred_are_shown_at_a_time_and_links_lead_through_all(look) -> None:
    names, panel = look()
    seen = list(names)
    assert (len(names), names[0]) == (100, "d0")
    assert "1 to 100 of 250." in panel
    while link := re.search(r'href="\?destination=&amp;from=(\d+)#destinations">Next', panel):
        names, panel = look(**{"from": link[1]})
        assert len(names) <= 100
        seen += names
    assert len(seen) == len(set(seen)) == 250
    assert "201 to 250 of 250." in panel
    assert 'from=100#destinations">« Previous' in panel


def test_a_part_of_a_name_or_url_finds_destinations(look) -> None:
    names, panel = look(destination="N24")
    assert names == [f"n{n}" for n in range(240, 250)]
    assert "1 to 10 of 10 found." in panel
    assert 'value="N24"' in panel
    assert look(destination="10.0.0.77:")[0] == ["n077"]
    names, panel = look(destination="n1", **{"from": "50"})
    assert (len(names), "51 to 100 of 100 found." in panel) == (50, True)
    assert "No destinations found." in look(destination="<nowhere>")[1]


@pytest.mark.parametrize("start", ["x", "-5", "9" * 30, "٣", ""])
def test_a_position_that_is_none_begins_at_the_first(look, start: str) -> None:
    assert look(**{"from": start})[0][0] == "d0"


def test_a_position_beyond_the_last_shows_none_and_a_link_back(look) -> None:
    names, panel = look(**{"from": "5000"})
    assert names == []
    assert "No destinations." in panel
    assert "« Previous" in panel


def test_setting_a_state_returns_to_the_shown_part(sign_in, cast: Cast, many: Fleet, look) -> None:
    _, panel = look(destination="n24")
    back = re.search(r'name="next" value="([^"]+)"', panel)
    assert back is not None
    address = reverse("destination-state", args=[many.slug, 245])
    form = {"state": "draining", "next": back[1], "expected_version": 1}
    answer = sign_in(cast.linus).post(address, form)
    assert answer["Location"] == reverse("fleet", args=[many.slug]) + "?destination=n24#destinations"


def test_few_destinations_need_no_search(sign_in, cast: Cast, fleet: Fleet) -> None:
    body = sign_in(cast.vera).get(reverse("fleet", args=[fleet.slug])).content.decode()
    assert "Name or URL contains" not in body
    assert ">4</span>" in body


def test_the_first_page_counts_destinations(sign_in, cast: Cast, many: Fleet) -> None:
    assert "<td>250</td>" in sign_in(cast.vera).get(reverse("home")).content.decode()


def test_an_explanation_shows_the_twenty_that_take_most_and_asks_for_a_name_in_a_field(
    sign_in, cast: Cast, many: Fleet
) -> None:
    plan = make.built_plan(cast, many)
    client, address = sign_in(cast.vera), reverse("plan-explain", args=[many.slug, plan.number])
    page = client.get(address, {"destination": "n100"})
    told, body = page.context["told"], page.content.decode()
    assert (told["receiver_count"], len(told["receivers"])) == (249, 100)
    assert "the 20 of 249 with the largest increase" in body
    assert len(re.findall(r'<tr><th scope="row">[dn]\d+</th>', body)) == 20
    assert '<input class="form-control" id="ask-destination" name="destination" value="n100"' in body
    assert "<option" not in body[body.index("ask-destination") : body.index('id="sensitivity"')]
    taken = [row["backup_rate"] + row["member_rate"] + row["cold_rate"] for row in told["receivers"]]
    assert taken == sorted(taken, reverse=True)
    page = client.get(address, {"destination": "n9999"})
    assert page.status_code == 400
    assert "the closest: n" in page.content.decode()
