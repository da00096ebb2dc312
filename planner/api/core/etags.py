"""ETags of resources, and the entity tags that a request names."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response


def known_etags(request: Request) -> set[str]:
    """The ETags in If-None-Match, compared weakly (RFC 9110, 13.1.2), because a proxy that compresses weakens them."""
    return {tag.strip().removeprefix("W/") for tag in request.headers.get("If-None-Match", "").split(",")}


def etag_of(row: Any) -> str | None:
    """Strong ETag of a versioned row."""
    version = getattr(row, "version", None)
    return f'"{version}"' if version is not None else None


def with_etag(response: Response, row: Any) -> Response:
    """Add the ETag if the row has one."""
    tag = etag_of(row)
    if tag:
        response["ETag"] = tag
    return response
