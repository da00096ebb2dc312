"""Rules for the name, URL and speed of a destination, used by pages, API and commands."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from planner.errors import Invalid
from planner.models.fleet import MAX_WEIGHT, MIN_WEIGHT

MAX_NAME_CHARS, MAX_URL_CHARS = 120, 500
# A number as people write it. Python's float() also accepts 1_0, nan, and digits of any script.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)

# Name, URL and speed of a new destination; the default speed is 1.
NewDestination = tuple[str, str] | tuple[str, str, float]


def check_destination(name: str, url: str, weight: Any = 1.0) -> None:
    """Check the name, URL and speed of a destination.

    Parameters
    ----------
    name
        1 to 120 visible characters, without blanks at an end or two in a row.
    url
        An http or https URL of at most 500 characters, without user and password.
    weight
        Speed, a number from 0.01 to 100; 1 is the reference.

    Raises
    ------
    Invalid
        If a value cannot be used; `field` is ``name``, ``url`` or ``weight``.
    """
    check_name(name)
    check_url(url)
    check_weight(weight)


def check_name(name: str) -> None:
    """Refuse a name that is empty, too long, or easily confused with another (outer blanks, invisible characters)."""
    if not 0 < len(name) <= MAX_NAME_CHARS:
        raise Invalid(f"destination names have 1 to {MAX_NAME_CHARS} characters", field="name")
    if not name.isprintable():  # this also refuses characters that change the writing direction
        raise Invalid(f"the name {name!a} contains invisible characters; remove them", field="name")
    if name != " ".join(name.split()):
        raise Invalid(f"the name {name!r} has blanks at an end or two in a row; remove them", field="name")


def check_url(url: str) -> None:
    """Refuse an address that is not http or https; names inside a cluster need no dot.

    User and password are refused and not repeated in the message, because audit events are never deleted.
    """
    try:
        parts = urlsplit(url)
        usable = (
            len(url) <= MAX_URL_CHARS
            and parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and url.isprintable()
            and " " not in url
        )
    except ValueError:
        usable = False
    if "@" in url.split("://", 1)[-1].split("/", 1)[0]:
        raise Invalid("write the URL without user and password: routers and the audit trail show it", field="url")
    if not usable:
        raise Invalid(f"{url[:60]!r} is not an http or https URL", field="url")


def check_weight(weight: Any) -> None:
    """Refuse a value that is not a valid speed."""
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise Invalid(f"a speed is a number from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}", field="weight")


def speed_of(text: str) -> float:
    """Parse a speed from text.

    Raises
    ------
    Invalid
        If it is not a number or out of bounds; `field` is ``weight``.
    """
    if not is_number(text) or not MIN_WEIGHT <= (speed := float(text)) <= MAX_WEIGHT:
        raise Invalid(f"{text[:40]!r} is not a speed from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}", field="weight")
    return speed


def is_number(text: str) -> bool:
    """Whether the text is a number in ASCII digits."""
    return _NUMBER.fullmatch(text) is not None
