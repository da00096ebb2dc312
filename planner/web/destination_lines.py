"""Destinations as people type them: one a line, a name, a URL and perhaps a speed."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.core.exceptions import ValidationError

from planner.services.fleets import MAX_WEIGHT, MIN_WEIGHT, NewDestination

DESTINATIONS_HELP = (
    "One a line: name, blank, URL, such as d00 http://10.0.0.1:8000. A speed may follow after another blank; "
    "2 takes twice the load of 1, the one that q_cap is measured on."
)
# A list that is all wrong is wrong in one way mostly: so many lines are named, the others counted.
MOST_FAULTS = 10


def destination_lines(text: str) -> list[NewDestination]:
    """Name, URL and speed (1 where none is written) of each line that is not blank.

    Raises
    ------
    ValidationError
        Naming every line that cannot be used, up to ten of them.
    """
    found: list[NewDestination] = []
    faults: list[str] = []
    line_of: dict[str, int] = {}
    for at, line in enumerate(text.splitlines(), start=1):
        parts = line.split()
        if not parts:
            continue
        fault = _fault(parts)
        if not fault and parts[0] in line_of:
            fault = f"the name {parts[0]!r} stands on line {line_of[parts[0]]} too."
        if fault:
            faults.append(f"Line {at}: {fault}")
            continue
        line_of[parts[0]] = at
        found.append((parts[0], parts[1], float(parts[2]) if len(parts) == 3 else 1.0))
    if faults:
        more = [f"And {len(faults) - MOST_FAULTS} more lines."] if len(faults) > MOST_FAULTS else []
        raise ValidationError(faults[:MOST_FAULTS] + more)
    return found


def _fault(parts: list[str]) -> str:
    if not 2 <= len(parts) <= 3 or len(parts[0]) > 120:
        return "write a name, a blank and a URL; a speed may follow."
    if not _is_address(parts[1]):
        return f"{parts[1][:60]!r} is not an http or https URL."
    if len(parts) == 3 and not _is_speed(parts[2]):
        return f"{parts[2][:40]!r} is not a speed from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}."
    return ""


def _is_address(url: str) -> bool:
    """Whether it is an http(s) URL with a host; names inside a cluster need no dot."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0 and len(url) <= 500
    except ValueError:
        return False


def _is_speed(text: str) -> bool:
    try:
        return MIN_WEIGHT <= float(text) <= MAX_WEIGHT
    except ValueError:
        return False
