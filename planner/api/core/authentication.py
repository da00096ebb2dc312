"""`Authorization: Token crt_...`; browsers use their session."""

from __future__ import annotations

from dataclasses import replace

from django.contrib.auth.models import User
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from planner import context
from planner.models import ApiToken
from planner.services.access import tokens


class TokenAuthentication(BaseAuthentication):
    """Token of a user, limited by scopes and optionally to one fleet."""

    keyword = "Token"

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """The user and the token; None when the header has another scheme."""
        parts = get_authorization_header(request).split()
        if not parts or parts[0].lower() != b"token":
            return None
        if len(parts) != 2:
            raise AuthenticationFailed("The header must be: Authorization: Token <token>.")
        token = tokens.find_token(parts[1].decode("latin-1"), context.current_origin().ip_address)
        if token is None:
            raise AuthenticationFailed("This token is unknown, expired, revoked or not allowed from this network.")
        context.set_origin(replace(context.current_origin(), token_prefix=token.prefix, token_number=token.pk))
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """The scheme of the 401 response to anonymous requests."""
        return self.keyword
