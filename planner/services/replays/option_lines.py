"""Parse replay options from text lines: in a form's box, or on a command line."""

from __future__ import annotations

from typing import Any

from planner.records import JsonObject


def read_fault(line: str) -> JsonObject:
    """`down d03 0.4 0.6`, `drain d01 0.5`, `slow d02 0.3 0.8 x2.5`: kind, destination, start, end and factor.

    Raises
    ------
    ValueError
        For a line of another form.
    """
    kind, *rest = line.split()
    fault: JsonObject = {"kind": kind}
    if rest and rest[-1][:1] == "x":
        fault["factor"] = _number(rest.pop()[1:])
    if len(rest) not in (2, 3):
        raise ValueError("write a kind, a destination, a start and, if it ends, an end, such as down d03 0.4 0.6")
    fault["destination"], fault["start"] = rest[0], _number(rest[1])
    fault["end"] = _number(rest[2]) if len(rest) == 3 else None
    return fault


def read_parameter(line: str) -> tuple[str, str, Any]:
    """`chwbl.load_factor = 1.5`: policy, parameter and value.

    Raises
    ------
    ValueError
        For a line of another form.
    """
    name, equals, text = line.partition("=")
    policy, dot, parameter = (part.strip() for part in name.partition("."))
    if not equals or not dot:
        raise ValueError("write a policy, a dot, a parameter and its value, such as chwbl.load_factor = 1.5")
    text = text.strip()
    if text in ("true", "false"):
        return policy, parameter, text == "true"
    value = _number(text)
    return policy, parameter, int(value) if text.lstrip("-").isdigit() else value


def _number(text: str) -> float:
    try:
        found = float(text) if len(text) <= 40 else float("nan")
    except ValueError:
        found = float("nan")
    if not abs(found) < float("inf"):
        raise ValueError(f"{text[:40]!r} is not a number")
    return found


def gathered(parameters: list[tuple[str, str, Any]]) -> dict[str, JsonObject]:
    """{policy: {parameter: value}} of what `read_parameter` read.

    Raises
    ------
    ValueError
        If a parameter occurs twice.
    """
    found: dict[str, JsonObject] = {}
    for policy, parameter, value in parameters:
        if parameter in found.setdefault(policy, {}):
            raise ValueError(f"{policy}.{parameter} occurs twice")
        found[policy][parameter] = value
    return found
