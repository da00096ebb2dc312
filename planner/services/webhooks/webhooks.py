"""Webhooks: who is told what happens, and the secret that they know it by."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Sequence
from urllib.parse import urlsplit

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone
from standardwebhooks import Webhook as Signer

from planner.errors import Conflict, Invalid
from planner.models import AuditLink, Fleet, Webhook, WebhookDelivery
from planner.records import JsonObject
from planner.selectors.access import rights
from planner.services.audit import events as audit
from planner.services.audit.events import record_event
from planner.services.base.locking import lock
from planner.services.webhooks import http

PREFIX = "whsec_"
SECRET_BYTES = 32
OLD_SECRET_CHARS = len(PREFIX) + 43  # `whsec_` and unpadded base64; new ones are padded, a character longer


def _box() -> Fernet:
    """Encrypts under the installation's secret: a stolen database signs nothing."""
    key = hashlib.sha256(b"webhook secrets\0" + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))


def new_secret() -> str:
    """A signing secret as Standard Webhooks writes it: the prefix and the base64 of 32 random bytes."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signer_of(webhook: Webhook) -> Signer:
    """What signs the deliveries of the webhook.

    Secrets that were made before `whsec_` meant base64 are 43 characters of URL-safe base64 after the prefix. Their
    receivers know them as text: the key is the UTF-8 of all of it, prefix included.

    Raises
    ------
    Conflict
        When the installation's secret is another than the one it was stored under.
    """
    try:
        secret = _box().decrypt(webhook.secret.encode())
    except InvalidToken as error:
        raise Conflict("the secret of this webhook cannot be read: CACHEROUTE_SECRET_KEY has changed") from error
    return Signer(secret if len(secret) == OLD_SECRET_CHARS else secret.decode())


def _checked_actions(actions: Sequence[str]) -> list[str]:
    unknown = sorted(set(actions) - set(audit.ACTIONS))
    if unknown:
        raise Invalid(f"{unknown[0]!r} is no action of the audit trail", field="actions")
    return sorted(set(actions))


@transaction.atomic
def create_webhook(
    *,
    acting_user: User,
    name: str,
    url: str,
    fleet: Fleet | None = None,
    format: str = Webhook.Format.JSON,
    actions: Sequence[str] = (),
) -> tuple[Webhook, str]:
    """A webhook that is told of what happens from now on, and its secret: the only time that it is shown."""
    rights.require(acting_user, rights.MANAGE, fleet)
    if not name.strip() or len(name) > 120:
        raise Invalid("give a name of 1 to 120 characters", field="name")
    if format not in Webhook.Format.values:
        raise Invalid(f"choose among {', '.join(Webhook.Format.values)}", field="format")
    last = AuditLink.objects.order_by("-position").values_list("position", flat=True).first()
    secret = new_secret()
    try:
        with transaction.atomic():
            row = Webhook.objects.create(
                name=name,
                url=http.check_url(url),
                fleet=fleet,
                format=format,
                actions=_checked_actions(actions),
                secret=_box().encrypt(secret.encode()).decode(),
                created_by=acting_user,
                position=last or 0,
            )
    except IntegrityError as error:
        raise Conflict(f"there is a webhook {name!r} already", code="exists", field="name") from error
    record_event("webhook.created", acting_user=acting_user, fleet=fleet, subject=row, after=_facts(row))
    return row, secret


def _facts(row: Webhook) -> JsonObject:
    """For the trail, which many read for ever: of the address only the host, for its path may be a credential."""
    parts = urlsplit(row.url)
    where = {"host": f"{parts.scheme}://{parts.hostname}", "url_sha256": hashlib.sha256(row.url.encode()).hexdigest()}
    return {**where, "format": row.format, "actions": row.actions, "enabled": row.enabled}


def managed_webhooks(user: User) -> QuerySet[Webhook]:
    """Those that a person may look at and change: of fleets that they manage; of all fleets who manages all."""
    rows = Webhook.objects.select_related("fleet", "created_by")
    if rights.may(user, rights.MANAGE):
        return rows
    return rows.filter(fleet__in=rights.fleets_with(user, rights.MANAGE))


@transaction.atomic
def change_webhook(
    *,
    acting_user: User,
    webhook: Webhook,
    url: str | None = None,
    actions: Sequence[str] | None = None,
    enabled: bool | None = None,
    expected_version: int | None = None,
) -> Webhook:
    """Change where it goes, what it is told of, or switch it off and on (what happened meanwhile is told then)."""
    rights.require(acting_user, rights.MANAGE, webhook.fleet)
    row: Webhook = lock(Webhook, webhook.pk, expected_version)
    before = _facts(row)
    if url is not None:
        row.url = http.check_url(url)
    if actions is not None:
        row.actions = _checked_actions(actions)
    if enabled is not None:
        row.enabled = enabled
    if _facts(row) == before:
        return row
    row.bump("url", "actions", "enabled")
    record_event(
        "webhook.changed", acting_user=acting_user, fleet=row.fleet, subject=row, before=before, after=_facts(row)
    )
    return row


@transaction.atomic
def delete_webhook(*, acting_user: User, webhook: Webhook) -> None:
    """Remove it with the log of its deliveries; that it was there stays in the trail."""
    rights.require(acting_user, rights.MANAGE, webhook.fleet)
    row: Webhook = lock(Webhook, webhook.pk)
    record_event("webhook.deleted", acting_user=acting_user, fleet=row.fleet, subject=row, before=_facts(row))
    row.delete()


@transaction.atomic
def send_again(*, acting_user: User, delivery: WebhookDelivery) -> WebhookDelivery:
    """Give a delivery that was given up, or went out already, another round of attempts."""
    rights.require(acting_user, rights.MANAGE, delivery.webhook.fleet)
    row = WebhookDelivery.objects.select_for_update(no_key=True).get(pk=delivery.pk)
    if row.state == WebhookDelivery.State.WAITING:
        raise Conflict("this delivery is on its way")
    row.state, row.attempts, row.next_attempt_at = WebhookDelivery.State.WAITING, 0, timezone.now()
    row.save(update_fields=["state", "attempts", "next_attempt_at"])
    return row
