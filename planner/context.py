"""Where a change came from: kept for the audit trail while one request or command is served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Origin:
    """Request id, client address and token of what is being served; empty for commands and tasks."""

    request_id: str = ""
    ip_address: str | None = None
    token_prefix: str = ""
    token_number: int | None = None


NOWHERE = Origin()
_origin: ContextVar[Origin] = ContextVar("origin", default=NOWHERE)


def current_origin() -> Origin:
    """The origin of the change being made."""
    return _origin.get()


def set_origin(value: Origin) -> None:
    """Refine the origin of what is being served (the surrounding `origin` block undoes it)."""
    _origin.set(value)


@contextmanager
def origin(value: Origin) -> Iterator[None]:
    """Changes made inside come from `value`."""
    token = _origin.set(value)
    try:
        yield
    finally:
        _origin.reset(token)
