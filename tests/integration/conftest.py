"""Real workers see what a test stores: its rows are committed, its broker is empty at the start."""

from __future__ import annotations

import pytest
from celery import current_app
from rest_framework.test import APIClient

from planner.services.access import tokens
from tests.factories import Cast


def _flush() -> None:
    with current_app.connection_for_write() as broker:
        broker.default_channel.client.flushdb()


@pytest.fixture(autouse=True)
def _empty_broker():
    _flush()
    yield
    _flush()


@pytest.fixture
def cast(transactional_db) -> Cast:
    return Cast()


@pytest.fixture
def secret(cast) -> str:
    """A token that opens everything."""
    return tokens.create_token(acting_user=cast.root, name="test", scopes=["read", "ingest", "plan", "deploy"])[1]


@pytest.fixture
def client(secret) -> APIClient:
    return APIClient(headers={"Authorization": f"Token {secret}"})
