"""What a destination may be called, where it may be, and how fast it may be: one rule for pages, API and commands."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from planner.errors import Invalid
from planner.models.fleet import MAX_WEIGHT, MIN_WEIGHT

MAX_NAME_CHARS, MAX_URL_CHARS = 120, 500
# A number as people write it. Python's float() takes more: 1_0, nan, and digits of any script.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)

# Name, URL and speed of a destination that is to be; without a speed it is 1.
NewDestination = tuple[str, str] | tuple[str, str, float]


def check_destination(name: str, url: str, weight: Any = 1.0) -> None:
    """Refuse a destination that cannot be used.

    Raises
    ------
    Invalid
        `field` is ``name``, ``url`` or ``weight``.
    """
    check_name(name)
    check_url(url)
    check_weight(weight)


def check_name(name: str) -> None:
    """Refuse a name that is empty, long, or looks like another one: blanks at its ends, signs that nobody sees."""
    if not 0 < len(name) <= MAX_NAME_CHARS:
        raise Invalid(f"destination names have 1 to {MAX_NAME_CHARS} characters", field="name")
    if not name.isprintable():  # neither are the characters that turn the direction of writing
        raise Invalid(f"the name {name!a} holds characters that cannot be seen", field="name")
    if name != " ".join(name.split()):
        raise Invalid(f"the name {name!r} has blanks at an end, or two in a row", field="name")


def check_url(url: str) -> None:
    """Refuse what is no http(s) address; names inside a cluster need no dot.

    User and password are refused and not repeated: they would stand in the audit trail, which forgets nothing.
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
    """Refuse what is no speed of a destination."""
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise Invalid(f"a speed is a number from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}", field="weight")


def speed_of(text: str) -> float:
    """The speed that somebody wrote.

    Raises
    ------
    Invalid
        When it is no number, or none that a speed can be; `field` is ``weight``.
    """
    if not is_number(text) or not MIN_WEIGHT <= (speed := float(text)) <= MAX_WEIGHT:
        raise Invalid(f"{text[:40]!r} is not a speed from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}", field="weight")
    return speed


def is_number(text: str) -> bool:
    """Whether it is a number in ASCII digits and nothing else."""
    return _NUMBER.fullmatch(text) is not None
