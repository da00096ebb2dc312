"""The origin of a change: kept for the audit trail during one request or command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Origin:
    """Request id, client address and token of the request; empty for commands and tasks."""

    request_id: str = ""
    ip_address: str | None = None
    token_prefix: str = ""
    token_number: int | None = None


NOWHERE = Origin()
_origin: ContextVar[Origin] = ContextVar("origin", default=NOWHERE)


def current_origin() -> Origin:
    """Return the origin of the current change."""
    return _origin.get()


def set_origin(value: Origin) -> None:
    """Replace the present origin (the surrounding `origin` block restores it)."""
    _origin.set(value)


@contextmanager
def origin(value: Origin) -> Iterator[None]:
    """Set the origin of changes in the block."""
    token = _origin.set(value)
    try:
        yield
    finally:
        _origin.reset(token)
