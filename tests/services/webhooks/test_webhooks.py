"""Webhooks: told of everything once, signed, retried, and never sent to where the console should not reach."""

import base64
import contextlib
import datetime as dt
import hmac
import json
import secrets
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address

import pytest
from django.utils import timezone
from standardwebhooks import Webhook as Signer
from standardwebhooks import WebhookVerificationError

from planner.errors import Conflict, Invalid, NotAllowed
from planner.models import AuditEvent, Webhook, WebhookDelivery
from planner.services.access import roles, tokens
from planner.services.audit.events import record_event
from planner.services.webhooks import delivery as webhook_delivery
from planner.services.webhooks import http, webhooks
from tests import factories as make
from tests.speed import lateness

pytestmark = pytest.mark.django_db(transaction=True)


class Receiver:
    """A real HTTP server that keeps what it was sent and answers as the test sets."""

    def __init__(self):
        self.got, self.answers = [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append((dict(self.headers), body))
                status, text = outer.answers.pop(0) if outer.answers else (200, b"ok")
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?x=1"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver(settings):
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    running = Receiver()
    yield running
    running.close()


def hook(cast, receiver, **options):
    options = {"name": "ops", "url": receiver.url, **options}
    return webhooks.create_webhook(acting_user=cast.root, **options)


def happens(fleet, reason="because", action="plan.commented"):
    record_event(action, acting_user=None, fleet=fleet, subject=fleet, reason=reason, system="monitor")


def test_an_event_arrives_once_with_a_signature_that_the_secret_explains(cast, fleet, receiver):
    row, secret = hook(cast, receiver, fleet=fleet, actions=["plan.commented"])
    happens(fleet, "p99 é > 3")
    assert webhook_delivery.run() == {"planned": 1, "sent": 1}
    assert webhook_delivery.run() == {"planned": 0, "sent": 0}
    ((headers, body),) = receiver.got
    assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
    sent = Signer(secret).verify(body, headers)
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    mac = hmac.digest(base64.b64decode(secret.removeprefix("whsec_")), signed, "sha256")
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(mac).decode()}"
    with pytest.raises(WebhookVerificationError):
        Signer(secret).verify(body + b" ", headers)
    assert not any(name.lower().startswith("x-cacheroute") for name in headers)
    assert (sent["format"], sent["action"], sent["fleet"], sent["reason"], sent["actor"]) == (
        "cacheroute.event/1", "plan.commented", fleet.slug, "p99 é > 3", "monitor",
    )  # fmt: skip
    delivery = WebhookDelivery.objects.get()
    assert headers["webhook-id"] == f"msg_{delivery.pk}"
    assert (delivery.state, delivery.status, delivery.answer, delivery.attempts) == ("delivered", 200, "ok", 1)
    assert secret not in row.secret


def test_a_secret_of_an_earlier_release_signs_as_the_text_that_it_is(cast, fleet, receiver):
    row, _ = hook(cast, receiver, fleet=fleet, actions=["plan.commented"])
    old = "whsec_" + secrets.token_urlsafe(32)
    Webhook.objects.filter(pk=row.pk).update(secret=webhooks._box().encrypt(old.encode()).decode())
    happens(fleet)
    webhook_delivery.run()
    ((headers, body),) = receiver.got
    assert Signer(old.encode()).verify(body, headers)["action"] == "plan.commented"


def test_only_the_chosen_fleet_and_actions_are_delivered(cast, fleet, receiver):
    other = make.make_fleet(cast, "other")
    hook(cast, receiver, fleet=fleet, actions=["fleet.fell_back"])
    for one in (fleet, other):
        for action in ("fleet.fell_back", "plan.commented"):
            happens(one, action=action)
    webhook_delivery.run()
    told = [json.loads(body) for _, body in receiver.got]
    assert [(t["fleet"], t["action"]) for t in told] == [(fleet.slug, "fleet.fell_back")]


def test_what_fails_is_sent_again_after_growing_pauses_and_given_up_at_last(cast, fleet, receiver):
    hook(cast, receiver, fleet=fleet)
    webhook_delivery.run()
    receiver.got.clear()
    happens(fleet)
    pauses = []
    for _ in range(len(webhook_delivery.PAUSES_S) + 1):
        receiver.answers = [(500, b"broken")]
        webhook_delivery.run()
        delivery = WebhookDelivery.objects.latest("id")
        if delivery.next_attempt_at:
            pauses.append(round((delivery.next_attempt_at - timezone.now()).total_seconds()))
            assert webhook_delivery.run()["sent"] == 0
            WebhookDelivery.objects.filter(pk=delivery.pk).update(next_attempt_at=timezone.now())
    assert pauses == [pytest.approx(p, abs=2) for p in webhook_delivery.PAUSES_S]
    assert (delivery.state, delivery.status, delivery.answer) == ("failed", 500, "broken")
    assert webhook_delivery.run()["sent"] == 0
    ids = {headers["webhook-id"] for headers, _ in receiver.got}
    assert ids == {f"msg_{delivery.pk}"}
    webhooks.send_again(acting_user=cast.root, delivery=delivery)
    webhook_delivery.run()
    assert WebhookDelivery.objects.get(pk=delivery.pk).state == "delivered"


def test_a_receiver_that_fails_keeps_no_other_from_being_told(cast, fleet, receiver, settings):
    webhooks.create_webhook(acting_user=cast.root, name="dead", url="http://127.0.0.1:1/", fleet=fleet)
    hook(cast, receiver, fleet=fleet)
    for _ in range(3):
        happens(fleet)
    webhook_delivery.run()
    assert WebhookDelivery.objects.filter(webhook__name="ops", state="delivered").count() == len(receiver.got) >= 3
    dead = WebhookDelivery.objects.filter(webhook__name="dead")
    assert sum(dead.values_list("attempts", flat=True)) == 1
    assert "Connect" in dead.get(attempts=1).answer


def test_a_worker_that_dies_with_a_delivery_leaves_it_due(cast, fleet, receiver):
    hook(cast, receiver, fleet=fleet)
    happens(fleet)
    webhook_delivery.plan_deliveries()
    claimed = webhook_delivery._claim(set())  # and then the worker was killed
    assert webhook_delivery._claim(set()) is None or WebhookDelivery.objects.count() > 1
    WebhookDelivery.objects.filter(pk=claimed.pk).update(next_attempt_at=timezone.now() - dt.timedelta(seconds=1))
    webhook_delivery.run()
    assert WebhookDelivery.objects.get(pk=claimed.pk).state == "delivered"


def test_events_while_a_webhook_is_off_are_delivered_when_it_is_on_again(cast, fleet, receiver):
    row, _ = hook(cast, receiver, fleet=fleet, actions=["plan.commented"])
    webhooks.change_webhook(acting_user=cast.root, webhook=row, enabled=False)
    happens(fleet)
    assert webhook_delivery.run() == {"planned": 0, "sent": 0}
    webhooks.change_webhook(acting_user=cast.root, webhook=row, enabled=True)
    assert webhook_delivery.run()["sent"] == 1


def test_a_redirect_is_not_followed(cast, fleet, receiver):
    hook(cast, receiver, fleet=fleet)
    receiver.answers = [(302, b"")] * 5
    happens(fleet)
    webhook_delivery.run()
    assert WebhookDelivery.objects.filter(status=302, state="waiting").exists()


def test_a_long_answer_is_kept_in_part(cast, fleet, receiver):
    hook(cast, receiver, fleet=fleet)
    receiver.answers = [(500, b"x" * 10_000_000)]
    webhook_delivery.run()
    assert len(WebhookDelivery.objects.filter(status=500).latest("id").answer) <= http.KEPT_BYTES


def test_slack_gets_text_that_mentions_nobody(cast, fleet, receiver):
    hook(cast, receiver, fleet=fleet, format="slack", actions=["plan.commented"])
    happens(fleet, reason="<!channel> & <http://x|y>")
    webhook_delivery.run()
    sent = json.loads(receiver.got[0][1])
    assert sent["text"] == f"monitor commented on the plan: {fleet} ({fleet.name})"
    assert "&lt;!channel&gt; &amp; &lt;http://x|y&gt;" in sent["blocks"][0]["text"]["text"]


@pytest.mark.parametrize(
    "url",
    ["http://example.com/", "https://10.0.0.1/", "https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/meta",
     "https://[::ffff:10.0.0.1]/", "https://user:pw@example.com/", "ftp://example.com/", "https:///x", "https://a b/",
     "https://example.com:99999/", "https://0.0.0.0/", "https://[fd00::1]/", "https://ex\nample.com/", "x" * 600],
)  # fmt: skip
def test_addresses_that_are_not_public_or_not_https_are_refused(cast, fleet, url):
    with pytest.raises(Invalid) as refusal:
        webhooks.create_webhook(acting_user=cast.root, name="x", url=url)
    assert refusal.value.field == "url"
    assert not Webhook.objects.exists()


def test_a_name_that_leads_to_a_private_address_is_not_connected_to(receiver, settings):
    settings.WEBHOOK_NETWORKS = []
    port = receiver.server.server_port
    answer = http.post(f"https://localhost:{port}/", b"{}", {})
    assert (answer.status, answer.good) == (None, False)
    assert "not a public address" in answer.text
    assert receiver.got == []


def test_who_manages_one_fleet_makes_webhooks_of_that_fleet_only(cast, fleet, receiver):
    user = make.make_user("solo")
    roles.grant_role(acting_user=cast.root, user=user, role="admin", fleet=fleet)
    with pytest.raises(NotAllowed):
        webhooks.create_webhook(acting_user=user, name="all", url=receiver.url)
    row, _ = webhooks.create_webhook(acting_user=user, name="mine", url=receiver.url, fleet=fleet)
    with pytest.raises(Conflict):
        webhooks.create_webhook(acting_user=user, name="mine", url=receiver.url, fleet=fleet)
    with pytest.raises(NotAllowed):
        webhooks.delete_webhook(acting_user=cast.linus, webhook=row)
    webhooks.delete_webhook(acting_user=user, webhook=row)
    assert AuditEvent.objects.filter(action="webhook.deleted", actor=user).exists()


def test_the_api_shows_the_secret_once_and_no_token_makes_webhooks(client, cast, fleet, receiver):
    from rest_framework.test import APIClient

    client = APIClient()
    client.force_login(cast.root)
    made = client.post("/api/v1/webhooks/", {"name": "ops", "url": receiver.url, "fleet": fleet.slug})
    assert made.status_code == 201, made.content
    assert made.json()["signing_secret"].startswith("whsec_")
    shown = client.get(f"/api/v1/webhooks/{made.json()['id']}/").json()
    assert not {"secret", "signing_secret"} & set(shown)
    _, secret = tokens.create_token(acting_user=cast.root, name="t", scopes=["read", "plan", "deploy"])
    token = APIClient(headers={"Authorization": f"Token {secret}"})
    assert token.post("/api/v1/webhooks/", {"name": "x", "url": receiver.url}).status_code == 403
    assert token.get("/api/v1/webhooks/").json()["results"][0]["name"] == "ops"
    webhook_delivery.run()
    log = client.get("/api/v1/webhook-deliveries/").json()["results"]
    assert log[0]["action"] == "webhook.created"
    again = client.post(f"/api/v1/webhook-deliveries/{log[0]['id']}/send-again/")
    assert again.json()["state"] == "waiting"
    stale = client.patch(f"/api/v1/webhooks/{shown['id']}/", {"enabled": False})
    assert stale.status_code == 428
    off = client.patch(f"/api/v1/webhooks/{shown['id']}/", {"enabled": False}, headers={"If-Match": '"1"'})
    assert off.json()["enabled"] is False
    assert client.delete(f"/api/v1/webhooks/{shown['id']}/").status_code == 204


def test_the_page_creates_switches_sends_again_and_removes(client, cast, fleet, receiver):
    client.force_login(cast.root)
    made = client.post("/webhooks/", {"name": "ops", "url": receiver.url, "format": "json", "fleet": fleet.pk})
    assert made.status_code == 201, made.context["form"].errors
    assert "whsec_" in made.content.decode()
    row = Webhook.objects.get()
    webhook_delivery.run()
    page = client.get("/webhooks/").content.decode()
    assert "whsec_" not in page
    assert "webhook.created" in page
    client.post(f"/webhooks/deliveries/{row.deliveries.get().pk}/again/")
    assert row.deliveries.get().state == "waiting"
    client.post(f"/webhooks/{row.pk}/switch/", {"enabled": "0"})
    assert not Webhook.objects.get().enabled
    client.post(f"/webhooks/{row.pk}/delete/")
    assert not Webhook.objects.exists()
    assert client.post("/webhooks/", {"name": "x", "url": "http://10.0.0.1/", "format": "json"}).status_code == 400
    client.force_login(cast.vera)
    assert client.get("/webhooks/").status_code == 200
    assert client.post("/webhooks/", {"name": "x", "url": receiver.url, "format": "json"}).status_code in (400, 403)


def test_a_receiver_that_drips_its_answer_is_left_after_five_seconds(settings):
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip():
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 100:
                    connection.sendall(bytes([byte]))
                    time.sleep(0.4)

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        started = time.monotonic()
        answer = http.post(f"http://127.0.0.1:{server.getsockname()[1]}/", b"{}", {})
        assert time.monotonic() - started < http.TIMEOUT_S + lateness()
        assert (answer.status, answer.good) == (None, False)
        thread.join()


@pytest.mark.parametrize(
    "address",
    ["64:ff9b::a00:1", "2002:7f00:1::", "::10.0.0.1", "fec0::1", "::ffff:8.8.8.8", "2001::1", "ff02::1", "100.64.0.1",
     "192.168.1.1", "0.0.0.0", "::", "198.18.0.1", "224.0.0.1", "255.255.255.255"],
)  # fmt: skip
def test_addresses_that_only_look_public_are_not(address):
    assert not http._is_public(ip_address(address))
    assert http._is_public(ip_address("8.8.8.8"))
    assert http._is_public(ip_address("2606:4700:4700::1111"))


def test_the_address_of_a_webhook_is_shown_only_to_users_who_manage_it_and_not_in_the_trail(cast, fleet, receiver):
    from rest_framework.test import APIClient

    hook(cast, receiver, fleet=fleet)
    webhook_delivery.run()
    for user, seen in ((cast.root, 1), (cast.vera, 0), (cast.linus, 0)):
        client = APIClient()
        client.force_login(user)
        assert len(client.get("/api/v1/webhooks/").json()["results"]) == seen
        assert bool(client.get("/api/v1/webhook-deliveries/").json()["results"]) == bool(seen)
    event = AuditEvent.objects.get(action="webhook.created")
    assert event.after["host"] == "http://127.0.0.1"
    assert "/hook" not in json.dumps(event.after)
