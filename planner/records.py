"""Frozen dataclasses with a JSON form: the types of what is stored in JSON columns and passed between layers."""

from __future__ import annotations

from typing import Any, Self

import msgspec

__all__ = ["JsonObject", "Record"]

# A JSON object as a column stores it or a request body brings it.
JsonObject = dict[str, Any]


class Record:
    """Base of frozen dataclasses that have a JSON form, one entry a field."""

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read the JSON form. Entries that the type does not have are ignored.

        Parameters
        ----------
        value : JSON value
            As `to_json` gives it, or as an earlier release stored it: absent entries take the defaults of the fields.

        Raises
        ------
        msgspec.ValidationError
            When an entry without default is absent or has another type; the message names its path.
        """
        return msgspec.convert(value, cls)

    def to_json(self) -> JsonObject:
        """The JSON form: plain dicts, lists, strings, numbers, booleans and None."""
        plain: JsonObject = to_json(self)
        return plain


def to_json(value: Any) -> Any:
    """The JSON form of a value that may hold records; tuples become lists."""
    return _lists(msgspec.to_builtins(value))


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lists(item) for name, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value
