"""JSON bodies of a size and depth that a request may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

MAX_DEPTH = 32


class ShallowJSONParser(JSONParser):
    """DRF's parser, where a body nested deeper than any of ours is a 400."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The parsed body."""
        try:
            body: dict[str, Any] = super().parse(stream, media_type, parser_context)
        except RecursionError as error:
            raise ParseError("JSON parse error - nested too deeply") from error
        level: list[Any] = [body]
        for _ in range(MAX_DEPTH):
            level = [v for item in level for v in _inside(item)]
            if not level:
                return body
        raise ParseError(f"JSON parse error - nested more than {MAX_DEPTH} deep")


def _inside(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return list(item.values())
    return item if isinstance(item, list) else []
