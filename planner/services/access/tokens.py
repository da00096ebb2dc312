"""API tokens: shown once, stored as an HMAC, limited by scopes, fleet, networks and time."""

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
# The last use is written at most this often; polling routers would otherwise write a row every second.
USE_RECORDED_EVERY = dt.timedelta(minutes=1)
MAX_NETWORKS = 50
MAX_OVERLAP = dt.timedelta(days=30)


def digest_of(secret: str) -> str:
    """Return the HMAC of a token under the installation's secret, so a stolen table of digests cannot be used."""
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
    """Create a token of the acting user; return it and its secret, which is shown only this once.

    Parameters
    ----------
    acting_user
        The owner of the token.
    name
        1 to 120 characters, different from the names of the owner's other tokens.
    scopes
        One or more values of `ApiToken.Scope`.
    fleet
        Limits the token to one fleet that the owner sees; None for no limit.
    expires_at
        End of its validity, in the future; None for no end.
    allowed_networks
        Networks in CIDR notation or single addresses from which it can be used, at most 50; none for no limit.

    Returns
    -------
    tuple of ApiToken and str
        The stored token, and its secret in plain text.

    Raises
    ------
    Invalid
        For a value that cannot be used, or a fleet that the owner does not see; `field` names it.
    Conflict
        When the owner has a token of that name.
    """
    if not name.strip() or len(name) > 120:
        raise Invalid("give a name of 1 to 120 characters", field="name")
    unknown = sorted(set(scopes) - set(ApiToken.Scope.values))
    if unknown or not scopes:
        raise Invalid(f"choose among {', '.join(ApiToken.Scope.values)}", field="scopes")
    if expires_at is not None and expires_at <= timezone.now():
        raise Invalid("the expiry is in the past; choose a later time", field="expires_at")
    if fleet is not None and not rights.sees(acting_user, fleet):
        raise Invalid("no fleet has this name", field="fleet")
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
    """Return the networks as CIDR; a single address becomes a network of one address.

    Raises
    ------
    Invalid
        If a value is not a network; the message names the first one.
    """
    if len(networks) > MAX_NETWORKS:
        raise Invalid(f"enter at most {MAX_NETWORKS} networks", field="allowed_networks")
    found = []
    for text in networks:
        try:
            found.append(str(ip_network(text.strip())))
        except ValueError as error:
            raise Invalid(
                f"{text[:60]!r} is not a network; write e.g. 10.0.0.0/8 or 2001:db8::/32 (host bits zero)",
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
        raise Conflict(f"you already have a token named {name!r}", code="exists", field="name") from error


@transaction.atomic
def rotate_token(*, acting_user: User, token: ApiToken, overlap: dt.timedelta = dt.timedelta()) -> tuple[ApiToken, str]:
    """Issue a new secret for a token; the old one works for `overlap`, so that a fleet of routers can follow.

    Only the owner may rotate a token, because the owner receives the new secret.

    Parameters
    ----------
    acting_user
        The owner of the token.
    token
        A valid token that was not rotated before.
    overlap
        0 to 30 days; with 0 the old token is revoked at once.

    Returns
    -------
    tuple of ApiToken and str
        The new token with the limits of the old one, and its secret, which is shown only this once.

    Raises
    ------
    Invalid
        When the overlap is out of range; `field` is ``overlap_s``.
    NotAllowed
        When the token belongs to another user.
    Conflict
        When the token is revoked, expired or already rotated.
    """
    if not dt.timedelta() <= overlap <= MAX_OVERLAP:
        raise Invalid(f"choose an overlap from 0 to {MAX_OVERLAP.days} days", field="overlap_s")
    old = ApiToken.objects.select_for_update(no_key=True).get(pk=token.pk)
    if old.user_id != acting_user.pk:
        raise NotAllowed("Only its owner can rotate a token; revoke it instead.")
    now = timezone.now()
    if old.revoked_at is not None or old.successor_due is not None or (old.expires_at and old.expires_at <= now):
        raise Conflict(f"{old} is no longer valid; create a token instead", code="not-valid")
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
    """Revoke a token at once. Allowed to its owner and to administrators."""
    token = ApiToken.objects.select_for_update(no_key=True).get(pk=token.pk)
    if token.user_id != acting_user.pk:
        rights.require(acting_user, rights.MANAGE)
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
        record_event("token.revoked", acting_user=acting_user, fleet=token.fleet, subject=token)
    return token


def tokens_of(user: User) -> QuerySet[ApiToken]:
    """Return the tokens that a user may see and revoke: their own, or all for users who manage all fleets."""
    tokens = ApiToken.objects.select_related("user", "fleet").order_by("-id")
    return tokens if rights.may(user, rights.MANAGE) else tokens.filter(user=user)


def find_token(secret: str, address: str | None) -> ApiToken | None:
    """Return the valid token with this secret, and record its use.

    Return None if it is unknown, expired or revoked, its user is disabled, or `address` is outside its networks.
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
