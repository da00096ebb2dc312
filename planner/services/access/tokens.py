"""API tokens: shown once, stored as an HMAC, bounded by scopes, fleet, networks and time."""

from __future__ import annotations

import datetime as dt
import hmac
import secrets
from ipaddress import ip_address, ip_network

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from planner.errors import Conflict, Invalid, NotAllowed
from planner.models import ApiToken, Fleet
from planner.selectors.access import rights
from planner.services.audit.events import record_event

PREFIX = "crt_"
# The last use is written at most this often, so that polling routers do not write a row a second.
USE_RECORDED_EVERY = dt.timedelta(minutes=1)
MAX_NETWORKS = 50
MAX_OVERLAP = dt.timedelta(days=30)


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
    allowed_networks: list[str] | None = None,
) -> tuple[ApiToken, str]:
    """A token of the acting user's own, and its secret: the only time that it is shown."""
    if not name.strip() or len(name) > 120:
        raise Invalid("give a name of 1 to 120 characters", field="name")
    unknown = sorted(set(scopes) - set(ApiToken.Scope.values))
    if unknown or not scopes:
        raise Invalid(f"choose among {', '.join(ApiToken.Scope.values)}", field="scopes")
    if expires_at is not None and expires_at <= timezone.now():
        raise Invalid("the expiry lies in the past", field="expires_at")
    if fleet is not None and not rights.sees(acting_user, fleet):
        raise Invalid("no fleet of that name", field="fleet")
    secret = _new_secret()
    token = _store(
        secret,
        user=acting_user,
        name=name,
        scopes=sorted(set(scopes)),
        fleet=fleet,
        expires_at=expires_at,
        allowed_networks=checked_networks(allowed_networks or []),
    )
    record_event(
        "token.created",
        acting_user=acting_user,
        fleet=fleet,
        subject=token,
        after={
            "scopes": token.scopes,
            "networks": token.allowed_networks,
            "expires_at": expires_at.isoformat() if expires_at else None,
        },
    )
    return token, secret


def checked_networks(networks: list[str]) -> list[str]:
    """The networks as CIDR; a single address is a network of one.

    Raises
    ------
    Invalid
        Naming the first that is none.
    """
    if len(networks) > MAX_NETWORKS:
        raise Invalid(f"{MAX_NETWORKS} networks at most", field="allowed_networks")
    found = []
    for text in networks:
        try:
            found.append(str(ip_network(text.strip())))
        except ValueError as error:
            raise Invalid(
                f"{text[:60]!r} is no network such as 10.0.0.0/8 or 2001:db8::/32 (host bits must be zero)",
                field="allowed_networks",
            ) from error
    return sorted(set(found))


def _new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def _store(secret: str, **values: object) -> ApiToken:
    try:
        with transaction.atomic():
            return ApiToken.objects.create(prefix=secret[:12], digest=digest_of(secret), **values)
    except IntegrityError as error:
        name = values["name"]
        raise Conflict(f"you have a token named {name!r} already", code="exists", field="name") from error


@transaction.atomic
def rotate_token(*, acting_user: User, token: ApiToken, overlap: dt.timedelta = dt.timedelta()) -> tuple[ApiToken, str]:
    """Another secret for the same purpose; the old one works on for `overlap`, so that a fleet of routers can follow.

    Only the owner rotates: the new secret is theirs to know.
    """
    if not dt.timedelta() <= overlap <= MAX_OVERLAP:
        raise Invalid(f"0 to {MAX_OVERLAP.days} days", field="overlap_s")
    old = ApiToken.objects.select_for_update(no_key=True).get(pk=token.pk)
    if old.user_id != acting_user.pk:
        raise NotAllowed("Only its owner can rotate a token; revoke it instead.")
    now = timezone.now()
    if old.revoked_at is not None or old.successor_due is not None or (old.expires_at and old.expires_at <= now):
        raise Conflict(f"{old} is not valid any more", code="not-valid")
    if overlap:
        old.successor_due = now + overlap
    else:
        old.revoked_at = now
    old.save(update_fields=["successor_due", "revoked_at"])
    secret = _new_secret()
    new = _store(
        secret,
        user=old.user,
        name=old.name,
        scopes=old.scopes,
        fleet=old.fleet,
        expires_at=old.expires_at,
        allowed_networks=old.allowed_networks,
        rotated_from=old,
    )
    record_event(
        "token.rotated",
        acting_user=acting_user,
        fleet=old.fleet,
        subject=new,
        before={"prefix": old.prefix},
        after={"prefix": new.prefix, "old_until": (old.successor_due or now).isoformat()},
    )
    return new, secret


@transaction.atomic
def revoke_token(*, acting_user: User, token: ApiToken) -> ApiToken:
    """Make the token useless from now on. Only its owner or an administrator finds it."""
    token = ApiToken.objects.select_for_update(no_key=True).get(pk=token.pk)
    if token.user_id != acting_user.pk:
        rights.require(acting_user, rights.MANAGE)
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
        record_event("token.revoked", acting_user=acting_user, fleet=token.fleet, subject=token)
    return token


def tokens_of(user: User) -> QuerySet[ApiToken]:
    """Tokens that this person may see and revoke: their own; everybody's for those who manage all fleets."""
    tokens = ApiToken.objects.select_related("user", "fleet").order_by("-id")
    return tokens if rights.may(user, rights.MANAGE) else tokens.filter(user=user)


def find_token(secret: str, address: str | None) -> ApiToken | None:
    """The valid token with this secret, its use recorded.

    None when it is unknown, expired, revoked, its user is off, or `address` is none that it may be used from.
    """
    token = ApiToken.objects.select_related("user").filter(digest=digest_of(secret)).first()
    now = timezone.now()
    if token is None or token.revoked_at or not token.user.is_active:
        return None
    if any(end is not None and end <= now for end in (token.expires_at, token.successor_due)):
        return None
    if token.allowed_networks and not _within(address, token.allowed_networks):
        return None
    if token.last_used_at is None or now - token.last_used_at > USE_RECORDED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now, last_used_ip=address)
    return token


def _within(address: str | None, networks: list[str]) -> bool:
    if address is None:
        return False
    here = ip_address(address)
    here = getattr(here, "ipv4_mapped", None) or here
    return any(here in ip_network(network) for network in networks)
