"""Embedded PostgreSQL and Valkey: what `make run` and `make test` use when no real server is named."""

from cacheroute_web.embedded.common import EmbeddedError
from cacheroute_web.embedded.postgres import Postgres
from cacheroute_web.embedded.valkey import Valkey

__all__ = ["EmbeddedError", "Postgres", "Valkey"]
