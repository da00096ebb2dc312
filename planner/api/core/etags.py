"""ETags of resources and of requests (RFC 9110, 13.1).

GZipMiddleware makes the ETag of a packed answer weak. A client that sends that one back means the same version, so
If-Match accepts weak tags too, where RFC 9110 asks for strong comparison: a tag is the version of a row, not of bytes.
"""

from __future__ import annotations

from typing import Any

from django.utils.http import parse_etags, quote_etag
from rest_framework.request import Request
from rest_framework.response import Response

ANY = "*"


def tags_in(header: str) -> list[str]:
    """The entity tags of If-Match or If-None-Match without the prefix of weak tags, or `*` alone."""
    return [tag.removeprefix("W/") for tag in parse_etags(header)]


def known_etags(request: Request) -> list[str]:
    """The tags of If-None-Match."""
    return tags_in(request.headers.get("If-None-Match", ""))


def names(tags: list[str], tag: str) -> bool:
    """Whether the tags of a header name this one, compared weakly (13.1.2), or are `*`."""
    return tag in tags or tags == [ANY]


def version_tag(version: int) -> str:
    """Strong ETag of a version."""
    return quote_etag(str(version))


def etag_of(row: Any) -> str | None:
    """Strong ETag of a versioned row."""
    version = getattr(row, "version", None)
    return version_tag(version) if version is not None else None


def with_etag(response: Response, row: Any) -> Response:
    """Add the ETag if the row has one."""
    tag = etag_of(row)
    if tag:
        response["ETag"] = tag
    return response
