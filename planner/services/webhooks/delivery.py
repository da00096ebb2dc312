"""Delivery of webhooks: each event at least once, retried with growing pauses, with a log of attempts.

1. Every few seconds new links of the audit chain become delivery rows of each webhook. The chain has no gaps and the
   order of commits, so nothing is lost while workers, the broker or a receiver are down.
2. A worker claims a due row by moving its next attempt by a minute. If the worker dies, the row becomes due again.
3. The receiver detects repeats by the id of the message and verifies the signature over id, time and body (Standard
   Webhooks).
"""

from __future__ import annotations

import datetime as dt
import json
import time

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from planner.errors import Refused
from planner.models import AuditEvent, AuditLink, Webhook, WebhookDelivery
from planner.models.audit import names_of
from planner.records import JsonObject
from planner.services.audit.events import label_of
from planner.services.base import locking
from planner.services.webhooks import http
from planner.services.webhooks.webhooks import signer_of

FORMAT = "cacheroute.event/1"
MESSAGE_PREFIX = "msg_"
LEASE = dt.timedelta(minutes=1)
# Seconds until the next attempt after the first, second, ... failure: about seven hours in all.
PAUSES_S = (10, 30, 120, 600, 1_800, 7_200, 14_400)
AT_A_TIME = 500  # links that one run reads for each webhook
MAX_S = 25.0  # seconds that one run sends
KEPT = dt.timedelta(days=30)


def run() -> dict[str, int]:
    """Create delivery rows for new events, then send due rows. Beat calls it; only one run is active at a time.

    A slow receiver occupies one worker process for some seconds; a second run would keep another from jobs.
    """
    with locking.held(locking.WEBHOOK_SPACE, 0) as got:
        return {"planned": plan_deliveries(), "sent": send_due()} if got else {"planned": 0, "sent": 0}


def plan_deliveries() -> int:
    """Create delivery rows for events after the last position of each webhook; return their number."""
    made = 0
    for pk in Webhook.objects.filter(enabled=True).values_list("pk", flat=True):
        with transaction.atomic():
            # A locked row is handled by another worker.
            webhook = Webhook.objects.select_for_update(no_key=True, skip_locked=True).filter(pk=pk).first()
            if webhook is not None and webhook.enabled:
                made += _plan(webhook)
    return made


def _plan(webhook: Webhook) -> int:
    links = AuditLink.objects.filter(position__gt=webhook.position).order_by("position")[:AT_A_TIME]
    found = list(links.values_list("position", "event_id", "event__action", "event__fleet_id"))
    if not found:
        return 0
    now = timezone.now()
    wanted_actions = _actions(webhook)
    wanted = [
        WebhookDelivery(webhook=webhook, event_id=event, next_attempt_at=now)
        for _, event, action, fleet in found
        if webhook.fleet_id in (None, fleet) and (wanted_actions is None or action in wanted_actions)
    ]
    WebhookDelivery.objects.bulk_create(wanted, ignore_conflicts=True)
    Webhook.objects.filter(pk=webhook.pk).update(position=found[-1][0])
    return len(wanted)


def _actions(webhook: Webhook) -> set[str] | None:
    """Return every stored name of the actions that a webhook wants; None for all actions."""
    if not webhook.actions:
        return None
    return {name for action in webhook.actions for name in names_of(action)}


def send_due() -> int:
    """Send due rows, the oldest first. A receiver that fails gets nothing more in this run."""
    until, failed, sent = time.monotonic() + MAX_S, set[int](), 0
    while time.monotonic() < until:
        delivery = _claim(failed)
        if delivery is None:
            break
        if not _send(delivery):
            failed.add(delivery.webhook_id)
        sent += 1
    WebhookDelivery.objects.filter(created_at__lt=timezone.now() - KEPT).exclude(state="waiting").delete()
    return sent


def _claim(leave: set[int]) -> WebhookDelivery | None:
    now = timezone.now()
    due = Q(state=WebhookDelivery.State.WAITING, next_attempt_at__lte=now, webhook__enabled=True)
    with transaction.atomic():
        rows = WebhookDelivery.objects.select_for_update(no_key=True, skip_locked=True, of=("self",))
        row = rows.filter(due).exclude(webhook_id__in=leave).order_by("next_attempt_at", "id").first()
        if row is None:
            return None
        row.attempts += 1
        row.next_attempt_at = now + LEASE
        row.save(update_fields=["attempts", "next_attempt_at"])
    return WebhookDelivery.objects.select_related("webhook", "event__fleet", "event__link").get(pk=row.pk)


def _send(delivery: WebhookDelivery) -> bool:
    """Make one attempt and store its result; return whether the receiver accepted it."""
    try:
        body, headers = signed(delivery, timezone.now())
        answer = http.post(delivery.webhook.url, body, headers)
    except Refused as refusal:
        answer = http.Answer(None, refusal.message[: http.KEPT_BYTES], 0.0)
    now = timezone.now()
    values: JsonObject = {"status": answer.status, "answer": answer.text, "took_s": answer.took_s}
    if answer.good:
        values |= {"state": WebhookDelivery.State.DELIVERED, "delivered_at": now, "next_attempt_at": None}
    elif delivery.attempts > len(PAUSES_S):
        values |= {"state": WebhookDelivery.State.FAILED, "next_attempt_at": None}
    else:
        values |= {"next_attempt_at": now + dt.timedelta(seconds=PAUSES_S[delivery.attempts - 1])}
    # Only the claimed attempt: after the lease another attempt may have started.
    WebhookDelivery.objects.filter(pk=delivery.pk, attempts=delivery.attempts).update(**values)
    return answer.good


def signed(delivery: WebhookDelivery, at: dt.datetime) -> tuple[bytes, dict[str, str]]:
    """Return the body of a delivery and its headers by Standard Webhooks."""
    event = delivery.event
    content = slack(event) if delivery.webhook.format == Webhook.Format.SLACK else document(delivery)
    body = json.dumps(content, ensure_ascii=False, default=str)
    message = f"{MESSAGE_PREFIX}{delivery.pk}"
    return body.encode(), {
        "webhook-id": message,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signer_of(delivery.webhook).sign(message, at, body),
    }


def document(delivery: WebhookDelivery) -> JsonObject:
    """Return the event as JSON (`cacheroute.event/1`)."""
    event = delivery.event
    return {
        "format": FORMAT,
        "delivery": delivery.pk,
        "position": event.link.position,
        "id": event.pk,
        "action": event.action,
        "text": sentence(event),
        "fleet": event.fleet.slug if event.fleet else None,
        "actor": event.actor_name,
        "subject": {"type": event.subject_type, "id": event.subject_id, "label": event.subject_label},
        "before": event.before,
        "after": event.after,
        "reason": event.reason,
        "evidence_digest": event.evidence_digest,
        "created_at": event.created_at.isoformat(),
    }


def sentence(event: AuditEvent) -> str:
    """Return a sentence: who did what, to what, on which fleet."""
    where = f" ({event.fleet.name})" if event.fleet else ""
    what = label_of(event.action)
    return f"{event.actor_name} {what}: {event.subject_label}{where}"


def slack(event: AuditEvent) -> JsonObject:
    """Return the event in the format of Slack's incoming webhooks."""
    text = _escaped(sentence(event))
    section = f"*{text}*"
    if event.reason:
        section += f"\n> {_escaped(event.reason[:1_000])}"
    return {
        "text": text,
        "blocks": [
            {"type": "section", "text": {"type": "mrkdwn", "text": section}},
            {
                "type": "context",
                "elements": [{"type": "plain_text", "text": f"{event.action} · {event.created_at:%Y-%m-%d %H:%M} UTC"}],
            },
        ],
    }


def _escaped(text: str) -> str:
    """Escape Slack's three control characters, and join lines so that none starts a quote or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")
