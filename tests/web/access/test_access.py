"""Access to pages and forms."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from planner.models import Fleet, Plan
from planner.web.core.middleware import ClientMiddleware
from tests import factories as make
from tests.factories import Cast

pytestmark = pytest.mark.django_db

PAGES = ["home", "audit", "tokens", "fleet-new"]
FLEET_PAGES = ["fleet", "fleet-audit", "fleet-policy", "workload-new", "calibration-new", "plan-new", "jobs-panel"]


def test_an_anonymous_visitor_is_sent_to_sign_in_from_every_page(fleet: Fleet) -> None:
    addresses = [reverse(name) for name in PAGES] + [reverse(name, args=[fleet.slug]) for name in FLEET_PAGES]
    addresses += [reverse("plan", args=[fleet.slug, 0]), reverse("plan-progress", args=[fleet.slug, 0])]
    for address in addresses:
        response = Client().get(address)
        assert (response.status_code, response.url) == (302, f"/login/?next={address}"), address


def test_an_anonymous_post_changes_nothing(fleet: Fleet) -> None:
    response = Client().post(reverse("fall-back", args=[fleet.slug]))
    assert response.status_code == 302
    assert response.url.startswith("/login/")
    fleet.refresh_from_db()
    assert fleet.table_version == 1


def test_health_is_shown_without_signing_in() -> None:
    response = Client().get("/healthz/")
    assert (response.status_code, response.content) == (200, b"ok\n")


def test_health_is_503_when_the_database_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError, connection

    def broken() -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(connection, "cursor", broken)
    assert Client().get("/healthz/").status_code == 503


@pytest.mark.parametrize(
    ("page", "allowed"),
    [
        ("workload-new", {"ada", "root"}),
        ("calibration-new", {"ada", "root"}),
        ("plan-new", {"ada", "root"}),
        ("fleet-policy", {"root"}),
        ("fleet", {"root", "ada", "grace", "linus", "vera"}),
        ("fleet-audit", {"root", "ada", "grace", "linus", "vera"}),
    ],
)
def test_pages_open_with_the_right_and_name_the_reason_without_it(
    sign_in, cast: Cast, fleet: Fleet, page: str, allowed: set[str]
) -> None:
    for name in ("root", "ada", "grace", "linus", "vera"):
        response = sign_in(getattr(cast, name)).get(reverse(page, args=[fleet.slug]))
        assert response.status_code == (200 if name in allowed else 403), (page, name)
        if name not in allowed:
            assert f"{name} may not" in response.content.decode()


@pytest.mark.parametrize(
    ("action", "refused"),
    [
        ("fall-back", ["ada", "vera"]),
        ("calibration-simulate", ["grace", "linus", "vera"]),
        ("calibration-import", ["grace", "linus", "vera"]),
        ("workload-new", ["grace", "linus", "vera"]),
        ("plan-new", ["grace", "linus", "vera"]),
    ],
)
def test_forms_of_a_fleet_are_refused_without_the_right(
    sign_in, cast: Cast, fleet: Fleet, action: str, refused: list[str]
) -> None:
    for name in refused:
        assert sign_in(getattr(cast, name)).post(reverse(action, args=[fleet.slug])).status_code == 403, name


def test_forms_of_a_plan_are_refused_without_the_right(sign_in, cast: Cast, fleet: Fleet) -> None:
    plan = make.built_plan(cast, fleet)
    refused = {
        "plan-submit": ["grace", "linus", "vera"],
        "plan-approve": ["ada", "linus", "vera"],
        "plan-reject": ["ada", "linus", "vera"],
        "canary-start": ["ada", "vera"],
        "replay-new": ["grace", "linus", "vera"],
        "plan-evaluate": ["grace", "linus", "vera"],
    }
    for action, names in refused.items():
        for name in names:
            client = sign_in(getattr(cast, name))
            response = client.post(reverse(action, args=[fleet.slug, plan.number]), {"comment": "no"})
            assert response.status_code == 403, (action, name)
    assert Plan.objects.get(pk=plan.pk).state == "built"


def test_every_page_of_a_fleet_has_the_fall_back_button_for_operators_only(sign_in, cast: Cast, fleet: Fleet) -> None:
    pages = [reverse("fleet", args=[fleet.slug]), reverse("fleet-audit", args=[fleet.slug])]
    pages.append(reverse("plan", args=[fleet.slug, 0]))
    button = "Fall back to Flat-LB"
    for page in pages:
        assert button in sign_in(cast.linus).get(page).content.decode(), page
        assert button not in sign_in(cast.ada).get(page).content.decode(), page


def test_a_form_without_its_csrf_token_is_refused_with_a_message(cast: Cast, fleet: Fleet) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast.linus)
    response = client.post(reverse("fall-back", args=[fleet.slug]))
    assert response.status_code == 403
    assert "reload the page" in response.content.decode()


def test_get_does_not_change_anything(sign_in, cast: Cast, fleet: Fleet) -> None:
    assert sign_in(cast.linus).get(reverse("fall-back", args=[fleet.slug])).status_code == 405


def test_eight_wrong_passwords_lock_the_name_and_say_for_how_long(cast: Cast) -> None:
    client = Client()
    for _ in range(8):
        response = client.post(reverse("login"), {"username": "ada", "password": "wrong"})
    assert response.status_code == 429
    assert "Try again in 15 minutes" in response.content.decode()
    assert client.post(reverse("login"), {"username": "ada", "password": make.PASSWORD}).status_code == 429


def test_missing_things_are_404_with_a_page(sign_in, cast: Cast, fleet: Fleet) -> None:
    for address in ("/fleets/none/", f"/fleets/{fleet.slug}/plans/99/", f"/fleets/{fleet.slug}/workloads/99/", "/no/"):
        response = sign_in(cast.vera).get(address)
        assert response.status_code == 404
        assert "This page does not exist" in response.content.decode()


@pytest.mark.parametrize("cookie", ["sessionid", "csrftoken", "other"])
def test_a_cookie_that_no_database_can_look_up_is_no_500(cookie: str) -> None:
    client = Client(headers={"Cookie": f'{cookie}="{chr(92)}000abc"'})
    assert client.get("/login/").status_code == 200
    assert client.get("/").status_code == 302


def test_an_invalid_text_in_a_form_is_refused_and_no_500(sign_in, cast: Cast, fleet: Fleet) -> None:
    page = sign_in(cast.linus).post(
        reverse("destination-state", args=[fleet.slug, 0]), {"state": "up\0", "expected_version": 1}, follow=True
    )
    assert page.status_code == 200
    assert "NUL" in page.content.decode()


def test_no_text_of_a_form_prevents_a_fallback(sign_in, cast: Cast, fleet: Fleet) -> None:
    page = sign_in(cast.linus).post(reverse("fall-back", args=[fleet.slug]), {"reason": "x\0" * 5_000}, follow=True)
    assert page.status_code == 200
    assert "Flat-LB is already live" in page.content.decode()


def test_only_trusted_proxies_set_the_client_address(settings) -> None:
    from django.http import HttpRequest, HttpResponse

    def seen(remote: str, forwarded: str) -> str:
        request = HttpRequest()
        request.META = {"REMOTE_ADDR": remote, "HTTP_X_FORWARDED_FOR": forwarded}
        ClientMiddleware(lambda r: HttpResponse(r.META["REMOTE_ADDR"]))(request)
        return str(request.META["REMOTE_ADDR"])

    settings.TRUSTED_PROXIES = []
    assert seen("10.0.0.1", "6.6.6.6") == "10.0.0.1"
    settings.TRUSTED_PROXIES = ["10.0.0.0/8"]
    assert seen("10.0.0.1", "6.6.6.6, 7.7.7.7") == "7.7.7.7"
    assert seen("10.0.0.1", "6.6.6.6, 10.2.0.1") == "6.6.6.6"
    assert seen("8.8.8.8", "6.6.6.6") == "8.8.8.8"
    assert seen("10.0.0.1", "") == "10.0.0.1"
