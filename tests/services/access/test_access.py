"""Roles on single fleets, accounts, emergencies and tokens: what each opens, and what none does."""

import datetime as dt
import json

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.utils import timezone

from dashboards.plan import app
from planner.errors import Conflict, Invalid, NotAllowed
from planner.models import ApiToken, AuditEvent, BreakGlass, Plan
from planner.selectors.access import rights
from planner.selectors.access.break_glass import waiting_for_review
from planner.selectors.access.rights import open_break_glass_of
from planner.services.access import roles, tokens
from planner.services.access.break_glass import close_break_glass, open_break_glass, review_break_glass
from planner.services.access.roles import remove_role
from planner.services.reviews.approvals import approve_plan
from planner.services.rollouts.starts import start_rollout
from tests import factories as make

pytestmark = pytest.mark.django_db


def again(user):
    """The account as another request finds it: roles are read once a user object."""
    return type(user).objects.get(pk=user.pk)


@pytest.fixture
def other(cast):
    return make.make_fleet(cast, "other")


@pytest.fixture
def solo(cast):
    return make.make_user("solo")


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("viewer", set()),
        ("planner", {rights.PLAN}),
        ("approver", {rights.APPROVE, rights.OPERATE}),
        ("operator", {rights.OPERATE}),
        ("admin", {rights.PLAN, rights.APPROVE, rights.OPERATE, rights.MANAGE}),
    ],
)
def test_a_role_on_one_fleet_opens_that_fleet_only(cast, fleet, other, solo, role, may):
    assert not rights.sees(solo, fleet)
    roles.grant_role(acting_user=cast.root, user=solo, role=role, fleet=fleet)
    solo = again(solo)
    every = (rights.PLAN, rights.APPROVE, rights.OPERATE, rights.MANAGE)
    assert {right for right in every if rights.may(solo, right, fleet)} == may
    assert not any(rights.may(solo, right, other) or rights.may(solo, right) for right in every)
    assert (rights.sees(solo, fleet), rights.sees(solo, other)) == (True, False)
    assert list(rights.visible_fleets(solo)) == [fleet]
    remove_role(acting_user=cast.root, user=solo, role=role, fleet=fleet)
    assert not rights.sees(again(solo), fleet)
    assert AuditEvent.objects.filter(action__in=["access.granted", "access.removed"], fleet=fleet).count() == 2


def test_pages_and_api_of_a_fleet_that_one_has_no_role_on_are_not_there(client, cast, fleet, other, solo):
    roles.grant_role(acting_user=cast.root, user=solo, role="planner", fleet=other)
    mine, theirs = make.built_plan(cast, other), make.built_plan(cast, fleet)
    client.force_login(solo)
    for path in ("", "audit/", "timeline/", "policy/", "break-glass/", f"plans/{theirs.number}/"):
        assert client.get(f"/fleets/{fleet.slug}/{path}").status_code == 404, path
    assert client.get(f"/fleets/{other.slug}/plans/{mine.number}/").status_code == 200
    assert client.get(f"/api/v1/plans/{theirs.pk}/").status_code == 404
    assert [row["slug"] for row in client.get("/api/v1/fleets/").json()["results"]] == ["other"]
    assert {row["fleet"] for row in client.get("/api/v1/audit-events/").json()["results"]} == {"other"}
    home = client.get("/").content.decode()
    assert "Other" in home
    assert "/fleets/alpha/" not in home
    # A plan of another fleet cannot be named in a body either.
    answer = client.post("/api/v1/replays/", {"plan": theirs.pk}, content_type="application/json")
    assert answer.status_code == 403


def test_who_manages_one_fleet_gives_roles_there_and_nowhere_else(cast, fleet, other, solo):
    roles.grant_role(acting_user=cast.root, user=solo, role="admin", fleet=fleet)
    solo = again(solo)
    roles.grant_role(acting_user=solo, user=cast.vera, role="operator", fleet=fleet)
    assert rights.may(again(cast.vera), rights.OPERATE, fleet)
    for where in (other, None):
        with pytest.raises(NotAllowed):
            roles.grant_role(acting_user=solo, user=cast.vera, role="operator", fleet=where)
    with pytest.raises(NotAllowed):
        roles.create_account(acting_user=solo, username="more")
    with pytest.raises(Invalid):
        roles.grant_role(acting_user=cast.root, user=solo, role="king", fleet=fleet)


def test_the_last_administrator_stays(cast):
    cast.root.is_superuser = False
    cast.root.save()
    root = again(cast.root)
    with pytest.raises(Conflict, match="last administrator"):
        remove_role(acting_user=root, user=root, role="admin")
    roles.grant_role(acting_user=root, user=cast.vera, role="admin")
    remove_role(acting_user=root, user=root, role="admin")
    assert not rights.may(again(root), rights.MANAGE)


def test_an_account_is_made_with_a_password_of_its_own_and_switched_off(client, cast):
    user, password = roles.create_account(acting_user=cast.root, username="newcomer", email="n@example.test")
    assert user.check_password(password)
    with pytest.raises(Conflict, match="already"):
        roles.create_account(acting_user=cast.root, username="newcomer")
    for bad in ("", "a b", "x" * 151, "Monitor", "system"):
        with pytest.raises(Invalid):
            roles.create_account(acting_user=cast.root, username=bad)
    _, secret = tokens.create_token(acting_user=user, name="t", scopes=["read"])
    roles.set_active(acting_user=cast.root, user=user, active=False)
    assert tokens.find_token(secret, "127.0.0.1") is None
    client.force_login(user)
    assert client.get("/").status_code == 302
    with pytest.raises(Conflict):
        roles.set_active(acting_user=cast.root, user=cast.root, active=False)


# --- break-glass ------------------------------------------------------------------------------------------
REASON = "p99 doubled after the driver update, nobody else answers"


def test_an_emergency_opens_operation_for_its_owner_and_approves_nothing(cast, fleet):
    assert not rights.may(cast.ada, rights.OPERATE, fleet)
    row = open_break_glass(acting_user=cast.ada, fleet=fleet, reason=REASON)
    assert rights.may(cast.ada, rights.OPERATE, fleet)
    assert not rights.may(cast.ada, rights.APPROVE, fleet)
    plan = make.submitted_plan(cast, fleet)
    with pytest.raises(NotAllowed):
        approve_plan(acting_user=cast.ada, plan=plan, evidence_digest=make.evaluation_of(plan).evidence_digest)
    with pytest.raises(Conflict, match="not approved"):
        start_rollout(acting_user=cast.ada, plan=Plan.objects.get(pk=plan.pk))
    close_break_glass(acting_user=cast.ada, break_glass=row)
    assert not rights.may(cast.ada, rights.OPERATE, fleet)


def test_break_glass_expires_and_waits_for_a_review_by_another_user(cast, fleet):
    row = open_break_glass(acting_user=cast.grace, fleet=fleet, reason=REASON)
    with pytest.raises(Conflict, match="open"):
        review_break_glass(acting_user=cast.hopper, break_glass=row, review="fine")
    BreakGlass.objects.filter(pk=row.pk).update(
        created_at=timezone.now() - dt.timedelta(hours=2), expires_at=timezone.now() - dt.timedelta(hours=1)
    )
    assert open_break_glass_of(cast.grace, fleet) is None
    assert waiting_for_review(fleet) == row
    with pytest.raises(Conflict, match="must be reviewed"):
        open_break_glass(acting_user=cast.grace, fleet=fleet, reason=REASON)
    with pytest.raises(NotAllowed, match="Another person"):
        review_break_glass(acting_user=cast.grace, break_glass=row, review="fine")
    with pytest.raises(NotAllowed):
        review_break_glass(acting_user=cast.linus, break_glass=row, review="fine")
    review_break_glass(acting_user=cast.hopper, break_glass=row, review="justified")
    assert waiting_for_review(fleet) is None
    row.refresh_from_db()
    assert row.closed_at == row.expires_at
    actions = AuditEvent.objects.filter(subject_type="breakglass").values_list("action", "actor_name")
    assert set(actions) == {
        ("break_glass.opened", "grace"), ("break_glass.closed", "system"), ("break_glass.reviewed", "hopper"),
    }  # fmt: skip


def test_the_database_refuses_a_review_by_the_same_person(cast, fleet):
    row = open_break_glass(acting_user=cast.grace, fleet=fleet, reason=REASON)
    with pytest.raises(IntegrityError), transaction.atomic():
        BreakGlass.objects.filter(pk=row.pk).update(reviewed_by=cast.grace, reviewed_at=timezone.now())


def test_an_emergency_needs_a_role_and_a_reason(cast, fleet):
    with pytest.raises(NotAllowed):
        open_break_glass(acting_user=cast.vera, fleet=fleet, reason=REASON)
    with pytest.raises(Invalid):
        open_break_glass(acting_user=cast.ada, fleet=fleet, reason="now")


# --- tokens -----------------------------------------------------------------------------------------------
def test_a_token_is_good_in_its_networks_only(cast):
    _, secret = tokens.create_token(
        acting_user=cast.ada, name="t", scopes=["read"], allowed_networks=["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"]
    )
    for address, good in [
        ("10.1.2.3", True), ("11.0.0.1", False), ("2001:db8::1", True), ("2001:db9::1", False), ("192.0.2.7", True),
        ("192.0.2.8", False), ("::ffff:10.1.2.3", True), (None, False),
    ]:  # fmt: skip
        assert (tokens.find_token(secret, address) is not None) == good, address
    for bad in ("10.0.0.1/8", "everywhere", "10.0.0.0/33"):
        with pytest.raises(Invalid, match="not a network"):
            tokens.create_token(acting_user=cast.ada, name="u", scopes=["read"], allowed_networks=[bad])


def test_a_rotated_token_ends_at_once_or_after_its_overlap(cast):
    token, old = tokens.create_token(acting_user=cast.ada, name="t", scopes=["read"], allowed_networks=["10.0.0.0/8"])
    second, new = tokens.rotate_token(acting_user=cast.ada, token=token, overlap=dt.timedelta(hours=1))
    assert (tokens.find_token(old, "10.0.0.1"), tokens.find_token(new, "10.0.0.1")) == (token, second)
    assert (second.name, second.scopes, second.allowed_networks) == ("t", ["read"], ["10.0.0.0/8"])
    ApiToken.objects.filter(pk=token.pk).update(successor_due=timezone.now())
    assert tokens.find_token(old, "10.0.0.1") is None
    _, third = tokens.rotate_token(acting_user=cast.ada, token=second)
    assert tokens.find_token(new, "10.0.0.1") is None
    assert tokens.find_token(third, "10.0.0.1") is not None
    with pytest.raises(Conflict):
        tokens.rotate_token(acting_user=cast.ada, token=token)
    with pytest.raises(NotAllowed):
        tokens.rotate_token(acting_user=cast.root, token=ApiToken.objects.latest("id"))


def test_the_use_of_a_token_is_recorded_with_its_address_and_only_a_digest_is_stored(cast):
    token, secret = tokens.create_token(acting_user=cast.ada, name="t", scopes=["read"])
    tokens.find_token(secret, "192.0.2.1")
    token.refresh_from_db()
    assert token.last_used_ip == "192.0.2.1"
    assert token.last_used_at is not None
    assert secret not in str(vars(token))


def test_a_token_is_revoked_by_its_owner_or_an_administrator(cast):
    token, _ = tokens.create_token(acting_user=cast.ada, name="t", scopes=["read"])
    with pytest.raises(NotAllowed):
        tokens.revoke_token(acting_user=cast.linus, token=token)
    assert tokens.revoke_token(acting_user=cast.root, token=token).revoked_at is not None


def test_accounts_and_roles_by_command(cast, fleet, capsys):
    call_command("create_account", "night", user="root", json=True)
    made = json.loads(capsys.readouterr().out)
    user = User.objects.get(username="night")
    assert user.check_password(made["password"])
    call_command("grant_role", "night", "operator", fleet=fleet.slug, user="root")
    assert rights.may(again(user), rights.OPERATE, fleet)
    call_command("grant_role", "night", "operator", fleet=fleet.slug, take=True, user="root")
    assert not rights.may(again(user), rights.OPERATE, fleet)
    with pytest.raises(CommandError, match="may not manage"):
        call_command("grant_role", "night", "operator", user="ada")


def test_the_pages_of_access_give_take_and_create(client, cast, fleet):
    client.force_login(cast.root)
    made = client.post("/access/accounts/", {"username": "night", "email": cast.ada.email.upper()})
    assert made.status_code == 201
    user = User.objects.get(username="night")
    assert user.check_password(made.context["password"])
    page = client.get("/access/").content.decode()
    assert "share the address ada@example.test" in page
    assert made.context["password"] not in page
    client.post(f"/fleets/{fleet.slug}/access/roles/", {"username": "night", "role": "planner"})
    assert "planner of Alpha" in client.get("/access/").content.decode()
    assert "night" in client.get(f"/fleets/{fleet.slug}/access/").content.decode()
    client.post(f"/fleets/{fleet.slug}/access/roles/", {"username": "night", "role": "planner", "take": "1"})
    assert not rights.sees(again(user), fleet)
    client.post(f"/access/accounts/{user.pk}/switch/", {"active": "0"})
    assert not again(user).is_active
    for who in (cast.linus, cast.ada):
        client.force_login(who)
        assert client.get("/access/").status_code == 403
        assert client.post("/access/roles/", {"username": "ada", "role": "admin"}).status_code == 403
    assert not rights.may(again(cast.ada), rights.MANAGE)


def test_the_page_of_emergencies_opens_closes_and_reviews_with_a_banner(client, cast, fleet):
    client.force_login(cast.grace)
    address = f"/fleets/{fleet.slug}/break-glass/"
    assert client.post(address, {"reason": "short"}).status_code == 400
    client.post(address, {"reason": REASON})
    row = BreakGlass.objects.get()
    client.force_login(cast.vera)
    banner = client.get(f"/fleets/{fleet.slug}/").content.decode()
    assert "grace operates this fleet past its guards" in banner
    assert client.post(address, {"reason": REASON}).status_code == 403
    client.force_login(cast.grace)
    client.post(f"{address}{row.pk}/close/")
    client.post(f"{address}{row.pk}/review/", {"review": "mine"})
    assert BreakGlass.objects.get().reviewed_at is None
    client.force_login(cast.hopper)
    assert "the review is missing" in client.get(f"/fleets/{fleet.slug}/").content.decode()
    client.post(f"{address}{row.pk}/review/", {"review": "justified"})
    assert BreakGlass.objects.get().review == "justified"
    assert "past its guards" not in client.get(f"/fleets/{fleet.slug}/").content.decode()


def test_the_page_of_tokens_rotates_and_binds_to_networks(client, cast):
    client.force_login(cast.ada)
    form = {"name": "router", "scopes": ["route"], "days": "30", "allowed_networks": "10.0.0.0/8, 192.0.2.1"}
    made = client.post("/tokens/", form)
    assert made.status_code == 201
    token = ApiToken.objects.get()
    assert token.allowed_networks == ["10.0.0.0/8", "192.0.2.1/32"]
    again_made = client.post(f"/tokens/{token.pk}/rotate/", {"overlap": "1"})
    assert again_made.status_code == 201
    assert tokens.find_token(again_made.context["secret"], "10.0.0.1").name == "router"
    assert tokens.find_token(made.context["secret"], "10.0.0.1") is not None
    assert client.post("/tokens/", {**form, "name": "x", "allowed_networks": "all"}).status_code == 400
    client.force_login(cast.linus)
    assert client.post(f"/tokens/{token.pk}/rotate/").status_code == 404


@pytest.mark.parametrize(
    "written", ["/fleets/{}/plans/1/", "\\/fleets\\/{}\\/plans\\/1\\/", "\\u002ffleets\\u002f{}\\u002fplans/1/"]
)
def test_charts_of_a_fleet_that_one_has_no_role_on_are_not_there_however_it_is_written(
    client, cast, fleet, other, solo, written
):
    roles.grant_role(acting_user=cast.root, user=solo, role="viewer", fleet=other)
    plan = make.replayed_plan(cast, fleet)
    mine = make.replayed_plan(cast, other)
    assert (plan.number, mine.number) == (1, 1)
    client.force_login(solo)
    computed = {name: found for name, found in app.callback_map.items() if "callback" in found}

    def ask(slug):
        """The statuses of all charts that go by the address of the page."""
        return {
            one(slug, output, found) for output, found in computed.items() if "pathname" in json.dumps(found["inputs"])
        }

    def one(slug, output, found):
        outputs = [dict(zip(("id", "property"), o.rsplit(".", 1), strict=True)) for o in output.strip(".").split("...")]
        values = {"pathname": f'"{written.format(slug)}"', "data": '"light"'}
        inputs, state = (
            ", ".join(
                f'{{"id": "{o["id"]}", "property": "{o["property"]}", "value": {values.get(o["property"], "null")}}}'
                for o in found[part]
            )
            for part in ("inputs", "state")
        )
        body = (
            f'{{"output": "{output}", "outputs": {json.dumps(outputs)}, "inputs": [{inputs}], "state": [{state}], '
            '"changedPropIds": []}'
        )
        return client.post("/charts/plan/_dash-update-component", body, content_type="application/json").status_code

    assert ask(fleet.slug) == {404}
    assert 200 in ask(other.slug)
    assert ask("x") == {404}


def test_a_callback_that_the_browser_computes_is_no_request_of_ours(client, cast, fleet):
    client.force_login(cast.vera)
    for name, found in app.callback_map.items():
        if "callback" not in found:
            body = {"output": name, "inputs": [], "state": []}
            answer = client.post("/charts/plan/_dash-update-component", body, content_type="application/json")
            assert answer.status_code == 400


def test_a_fleet_that_a_user_may_not_see_looks_like_one_that_does_not_exist(cast, fleet, other, solo):
    from rest_framework.test import APIClient

    roles.grant_role(acting_user=cast.root, user=solo, role="planner", fleet=other)
    client = APIClient()
    client.force_login(solo)
    answers = [
        client.post("/api/v1/calibrations/", {"fleet": slug, "q_cap": 8, "slots_measured": 60})
        for slug in (fleet.slug, "nowhere")
    ]
    told = [(a.status_code, a.json()["errors"][0]["detail"].replace(fleet.slug, "nowhere")) for a in answers]
    assert told[0] == told[1]
    assert told[0][0] == 400


def test_what_waits_elsewhere_is_not_told_to_a_token_of_one_fleet(cast, fleet, other):
    from rest_framework.test import APIClient

    make.submitted_plan(cast, fleet)
    _, secret = tokens.create_token(acting_user=cast.grace, name="t", scopes=["read", "plan"], fleet=other)
    client = APIClient(headers={"Authorization": f"Token {secret}"})
    assert client.get("/api/v1/waiting/").json() == []
    assert client.post("/api/v1/audit-checkpoints/").status_code == 403


def test_a_person_changes_their_password_and_the_trail_says_so_without_it(client, cast):
    client.force_login(cast.ada)
    wrong = {"old_password": "x", "new_password1": "a brand new phrase", "new_password2": "a brand new phrase"}
    client.post("/password/", wrong)
    assert again(cast.ada).check_password(make.PASSWORD)
    client.post("/password/", {**wrong, "old_password": make.PASSWORD})
    assert again(cast.ada).check_password("a brand new phrase")
    event = AuditEvent.objects.get(action="account.password_changed")
    assert (event.actor_name, event.before, event.after) == ("ada", {}, {})
    short = {"old_password": "a brand new phrase", "new_password1": "short", "new_password2": "short"}
    client.post("/password/", short)
    assert again(cast.ada).check_password("a brand new phrase")
