"""Parsers with limits on the depth of JSON bodies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.http import QueryDict
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser, FormParser, JSONParser, MultiPartParser

MAX_DEPTH = 32


class ShallowJSONParser(JSONParser):
    """A JSON parser that refuses deep nesting and duplicate names with 400."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The parsed body.

        Parameters
        ----------
        stream
            The body.
        media_type
            Content type of the body.
        parser_context
            Context of the parser.

        Returns
        -------
        dict[str, Any]
            The parsed body.

        Raises
        ------
        ParseError
            When the body is no JSON object with unique names and moderate depth.
        """
        try:
            encoding = (parser_context or {}).get("encoding", settings.DEFAULT_CHARSET)
            text = stream.read().decode(encoding)
            body: dict[str, Any] = json.loads(text, parse_constant=_no_number, object_pairs_hook=_each_once)
        except (ValueError, LookupError) as error:  # LookupError: an unknown encoding
            raise ParseError(f"JSON parse error - {error}") from error
        except RecursionError as error:
            raise ParseError("JSON parse error - nested too deeply") from error
        level: list[Any] = [body]
        for _ in range(MAX_DEPTH):
            level = [v for item in level for v in _inside(item)]
            if not level:
                return body
        raise ParseError(f"JSON parse error - nested more than {MAX_DEPTH} deep")


class AnyBody(BaseParser):
    """Accept every body. An unreadable body is empty. For requests that must not be refused."""

    media_type = "*/*"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """The parsed body, or an empty one.

        Parameters
        ----------
        stream
            The body.
        media_type
            Content type of the body.
        parser_context
            Context of the parser.

        Returns
        -------
        Any
            The parsed body; empty if it is unreadable.
        """
        kind = (media_type or "").partition(";")[0].strip().lower()
        parsers: dict[str, BaseParser] = {
            "application/json": ShallowJSONParser(),
            "application/x-www-form-urlencoded": FormParser(),
            "multipart/form-data": MultiPartParser(),
        }
        try:
            return parsers[kind].parse(stream, media_type, parser_context) if kind in parsers else QueryDict()
        except (APIException, SuspiciousOperation, ValueError, LookupError, OSError):
            return QueryDict()


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object. A duplicate name is refused, because its value is ambiguous."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name[:80]!r} is duplicate in one object")
        found[name] = value
    return found


def _inside(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return list(item.values())
    return item if isinstance(item, list) else []
