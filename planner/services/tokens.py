"""API tokens: shown once, stored as an HMAC, bounded by scopes, fleet and time."""

from __future__ import annotations

import datetime as dt
import hmac
import secrets

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from planner.errors import Conflict, Invalid
from planner.models import ApiToken, Fleet
from planner.services import audit

PREFIX = "crt_"
# The last use is written at most this often, so that polling routers do not write a row a second.
USE_RECORDED_EVERY = dt.timedelta(minutes=1)


def digest_of(secret: str) -> str:
    """HMAC of a token under the installation's secret: a stolen table of digests cannot be used or guessed at."""
    return hmac.new(settings.SECRET_KEY.encode(), secret.encode(), "sha256").hexdigest()


@transaction.atomic
def create_token(
    *,
    acting_user: User,
    name: str,
    scopes: list[str],
    fleet: Fleet | None = None,
    expires_at: dt.datetime | None = None,
) -> tuple[ApiToken, str]:
    """A token of the acting user's own, and its secret: the only time that it is shown."""
    if not name.strip() or len(name) > 120:
        raise Invalid("give a name of 1 to 120 characters", field="name")
    unknown = sorted(set(scopes) - set(ApiToken.Scope.values))
    if unknown or not scopes:
        raise Invalid(f"choose among {', '.join(ApiToken.Scope.values)}", field="scopes")
    if expires_at is not None and expires_at <= timezone.now():
        raise Invalid("the expiry lies in the past", field="expires_at")
    secret = PREFIX + secrets.token_urlsafe(32)
    try:
        with transaction.atomic():
            token = ApiToken.objects.create(
                user=acting_user,
                name=name,
                prefix=secret[:12],
                digest=digest_of(secret),
                scopes=sorted(set(scopes)),
                fleet=fleet,
                expires_at=expires_at,
            )
    except IntegrityError as error:
        raise Conflict(f"you have a token named {name!r} already", code="exists", field="name") from error
    audit.record("token.created", acting_user=acting_user, fleet=fleet, subject=token, after={"scopes": token.scopes})
    return token, secret


@transaction.atomic
def revoke_token(*, acting_user: User, token: ApiToken) -> ApiToken:
    """Make the token useless from now on. Only its owner or an administrator finds it."""
    token = ApiToken.objects.select_for_update(no_key=True).get(pk=token.pk)
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
        audit.record("token.revoked", acting_user=acting_user, fleet=token.fleet, subject=token)
    return token


def find_token(secret: str) -> ApiToken | None:
    """The valid token with this secret, its use recorded; None when unknown, expired, revoked or its user is off."""
    token = ApiToken.objects.select_related("user", "fleet").filter(digest=digest_of(secret)).first()
    now = timezone.now()
    if token is None or token.revoked_at or not token.user.is_active:
        return None
    if token.expires_at is not None and token.expires_at <= now:
        return None
    if token.last_used_at is None or now - token.last_used_at > USE_RECORDED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token
