"""Clients of the API: users with a session, programs with a token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from planner.models import ApiToken, Fleet
from planner.services.access import tokens
from tests.factories import Cast, make_fleet

ALL_SCOPES = list(ApiToken.Scope.values)


class Clients:
    """`clients.ada` is a browser that Ada signed in to; `clients.token(user, ...)` a program with a token of hers."""

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        self._made = 0

    def __getattr__(self, name: str) -> APIClient:
        return self.session(getattr(self._cast, name))

    @property
    def anonymous(self) -> APIClient:
        return APIClient()

    def session(self, user: User) -> APIClient:
        client = APIClient()
        client.force_login(user)
        return client

    def token(self, user: User, scopes: list[str] | None = None, fleet: Fleet | None = None) -> APIClient:
        self._made += 1
        _, secret = tokens.create_token(
            acting_user=user, name=f"token {self._made}", scopes=ALL_SCOPES if scopes is None else scopes, fleet=fleet
        )
        return APIClient(headers={"Authorization": f"Token {secret}"})


@pytest.fixture
def clients(cast: Cast) -> Clients:
    return Clients(cast)


@pytest.fixture
def other_fleet(cast: Cast) -> Fleet:
    return make_fleet(cast, "beta")


@pytest.fixture
def problem() -> Callable[..., dict[str, Any]]:
    """Check that a response is a problem document of that status and code, and return it."""

    def check(response: Any, status: int, code: str, pointer: str | None = None) -> dict[str, Any]:
        assert response.status_code == status, response.content
        assert response["Content-Type"] == "application/problem+json"
        body = response.json()
        assert (body["status"], body["code"]) == (status, code), body
        assert body["detail"]
        assert body["type"] == "about:blank"
        if pointer is not None:
            assert pointer in [error["pointer"] for error in body["errors"]], body
        return body

    return check
