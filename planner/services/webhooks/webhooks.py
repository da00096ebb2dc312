"""Webhooks: addresses that receive audit events, and the secrets that sign them."""

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
    """Return the cipher for stored secrets, keyed by the installation's secret: a stolen database signs nothing."""
    key = hashlib.sha256(b"webhook secrets\0" + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))


def new_secret() -> str:
    """Return a signing secret in the form of Standard Webhooks: the prefix and base64 of 32 random bytes."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signer_of(webhook: Webhook) -> Signer:
    """Return the signer of a webhook's deliveries.

    Secrets of earlier releases have 43 characters of URL-safe base64 after the prefix. Their receivers use them as
    text: the key is the UTF-8 of the whole secret, prefix included.

    Raises
    ------
    Conflict
        When the installation's secret changed since the webhook was created.
    """
    try:
        secret = _box().decrypt(webhook.secret.encode())
    except InvalidToken as error:
        raise Conflict("the secret of this webhook cannot be read: CACHEROUTE_SECRET_KEY has changed") from error
    return Signer(secret if len(secret) == OLD_SECRET_CHARS else secret.decode())


def _checked_actions(actions: Sequence[str]) -> list[str]:
    unknown = sorted(set(actions) - set(audit.ACTIONS))
    if unknown:
        raise Invalid(f"{unknown[0]!r} is not an audit action", field="actions")
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
    """Create a webhook for events from now on. Its secret is returned once and cannot be read later.

    Parameters
    ----------
    acting_user : User
        Who creates it; needs the right to manage the fleet, or all fleets.
    name, url : str
        Unique name of 1 to 120 characters, and the address that receives events.
    fleet : Fleet, optional
        Only events of this fleet; all fleets by default.
    format : str
        A value of `Webhook.Format`.
    actions : sequence of str
        Audit actions to send; all by default.

    Returns
    -------
    (Webhook, str)
        The webhook and its secret.

    Raises
    ------
    NotAllowed
        Without the right.
    Invalid
        For a name, address, format or action that cannot be used.
    Conflict
        When another webhook has the name.
    """
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
    """Return the facts for the audit trail; only the host of the address, since its path may be a credential."""
    parts = urlsplit(row.url)
    where = {"host": f"{parts.scheme}://{parts.hostname}", "url_sha256": hashlib.sha256(row.url.encode()).hexdigest()}
    return {**where, "format": row.format, "actions": row.actions, "enabled": row.enabled}


def managed_webhooks(user: User) -> QuerySet[Webhook]:
    """Return the webhooks that a user may read and change: those of fleets that the user manages."""
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
    """Change address or actions, or disable or enable a webhook. Events during a pause are sent when it is enabled.

    Parameters
    ----------
    acting_user : User
        Who changes it; needs the right to manage.
    webhook : Webhook
        The webhook to change.
    url, actions, enabled : optional
        New values; None keeps the value.
    expected_version : int, optional
        Version that the user saw.

    Returns
    -------
    Webhook
        The changed webhook.

    Raises
    ------
    NotAllowed, Invalid
        As for `create_webhook`.
    StaleVersion
        When its version is another.
    """
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
    """Delete a webhook and the log of its deliveries. The audit trail keeps that it existed."""
    rights.require(acting_user, rights.MANAGE, webhook.fleet)
    row: Webhook = lock(Webhook, webhook.pk)
    record_event("webhook.deleted", acting_user=acting_user, fleet=row.fleet, subject=row, before=_facts(row))
    row.delete()


@transaction.atomic
def send_again(*, acting_user: User, delivery: WebhookDelivery) -> WebhookDelivery:
    """Start another round of attempts for a delivered or failed delivery."""
    rights.require(acting_user, rights.MANAGE, delivery.webhook.fleet)
    row = WebhookDelivery.objects.select_for_update(no_key=True).get(pk=delivery.pk)
    if row.state == WebhookDelivery.State.WAITING:
        raise Conflict("this delivery is waiting to be sent already")
    row.state, row.attempts, row.next_attempt_at = WebhookDelivery.State.WAITING, 0, timezone.now()
    row.save(update_fields=["state", "attempts", "next_attempt_at"])
    return row
