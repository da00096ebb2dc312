"""Destinations as people type them: one a line, a name, a URL and perhaps a speed."""

from __future__ import annotations

from django.core.exceptions import ValidationError

from planner.errors import Invalid
from planner.services.fleets.destination_rules import NewDestination, check_destination, speed_of

DESTINATIONS_HELP = (
    "One a line: name, blank, URL, such as d00 http://10.0.0.1:8000. A speed may follow after another blank; "
    "2 takes twice the load of 1, the one that q_cap is measured on."
)
# A list that is all wrong is wrong in one way mostly: so many lines are named, the others counted.
MAX_FAULTS = 10


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
        try:
            row = _destination(parts)
            if row[0] in line_of:
                raise Invalid(f"the name {row[0]!r} stands on line {line_of[row[0]]} too")
        except Invalid as fault:
            faults.append(f"Line {at}: {fault.message}.")
            continue
        line_of[row[0]] = at
        found.append(row)
    if faults:
        more = [f"And {len(faults) - MAX_FAULTS} more lines."] if len(faults) > MAX_FAULTS else []
        raise ValidationError(faults[:MAX_FAULTS] + more)
    return found


def _destination(parts: list[str]) -> NewDestination:
    if not 2 <= len(parts) <= 3:
        raise Invalid("write a name, a blank and a URL; a speed may follow")
    row = (parts[0], parts[1], speed_of(parts[2]) if len(parts) == 3 else 1.0)
    check_destination(*row)
    return row
