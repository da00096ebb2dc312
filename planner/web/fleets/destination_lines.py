"""Destinations as text: one per line, with a name, a URL and an optional speed."""

from __future__ import annotations

from django.core.exceptions import ValidationError

from planner.errors import Invalid
from planner.services.fleets.destination_rules import NewDestination, check_destination, speed_of

DESTINATIONS_HELP = (
    "One per line: name and URL, such as d00 http://10.0.0.1:8000. A speed may follow: "
    "2 takes twice the load of 1, the speed at which q_cap is measured."
)
# Number of faulty lines that are named; further lines are counted.
MAX_FAULTS = 10


def destination_lines(text: str) -> list[NewDestination]:
    """Name, URL and speed (default 1) of each line that is not blank.

    Raises
    ------
    ValidationError
        With the faulty lines, up to `MAX_FAULTS` of them.
    """
    found: list[NewDestination] = []
    faults: list[str] = []
    line_of: dict[str, int] = {}
    for at, line in enumerate(text.splitlines(), start=1):
        parts = line.split()
        if not parts:
            continue
        try:
            row = _destination(parts)
            if row[0] in line_of:
                raise Invalid(f"the name {row[0]!r} is also on line {line_of[row[0]]}; names must be unique")
        except Invalid as fault:
            faults.append(f"Line {at}: {fault.message}.")
            continue
        line_of[row[0]] = at
        found.append(row)
    if faults:
        more = [f"{len(faults) - MAX_FAULTS} more lines have errors."] if len(faults) > MAX_FAULTS else []
        raise ValidationError(faults[:MAX_FAULTS] + more)
    return found


def _destination(parts: list[str]) -> NewDestination:
    if not 2 <= len(parts) <= 3:
        raise Invalid("write a name and a URL, separated by a space; a speed may follow")
    row = (parts[0], parts[1], speed_of(parts[2]) if len(parts) == 3 else 1.0)
    check_destination(*row)
    return row
