"""Refuse request values that PostgreSQL or JSON cannot store.

A NUL character, half a surrogate pair and a number that is not finite all parse as JSON or as a form, pass the
type check of a lookup, and fail only in the database: `{"fleet": "a\\u0000"}`, `{"plan": 1e400}`. One walk over the
request answers all of them with 400 and a pointer.
"""

from __future__ import annotations

import math
import re
from typing import Any

NUL = "A NUL character cannot be stored."
SURROGATE = "Half of a surrogate pair is not text."
NOT_FINITE = "Not a finite number."
OFFSET = "An offset from UTC is less than 16 hours."

# Times that Python accepts, but whose offset PostgreSQL refuses.
_FAR_OFFSET = re.compile(r"\d{4}-\d\d?-\d\d?[T ]\d\d?:[\d:.,]+ ?[+-](1[6-9]|2\d):?(\d\d)?")


def unstorable(value: Any) -> Any:
    """Errors as DRF error details (a list, or a dict by name or position); None without errors."""
    if isinstance(value, str):
        fault = _fault_of_text(value)
        return [fault] if fault else None
    if isinstance(value, float):
        return None if math.isfinite(value) else [NOT_FINITE]
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for name, item in value.items():
            fault = _fault_of_text(str(name))
            if fault:
                return [f"A field's name: {fault}"]
            if (faults := unstorable(item)) is not None:
                found[str(name)] = faults
        return found or None
    if isinstance(value, (list, tuple)):
        return {str(i): faults for i, item in enumerate(value) if (faults := unstorable(item)) is not None} or None
    return None


def _fault_of_text(text: str) -> str:
    if "\0" in text:
        return NUL
    try:
        text.encode()
    except UnicodeEncodeError:
        return SURROGATE
    return OFFSET if _FAR_OFFSET.fullmatch(text) else ""
