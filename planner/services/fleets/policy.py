"""The policy of a fleet: rules for its values, and the values themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from planner.errors import Invalid
from planner.models import Fleet
from planner.records import JsonObject


def check_policy(policy: JsonObject) -> None:
    """Refuse unknown fields and values out of range, naming the field."""
    for field, value in policy.items():
        if field not in _POLICY_RULES:
            raise Invalid(f"{field} is not part of a fleet's policy", field=field)
        holds, wanted = _POLICY_RULES[field]
        if not holds(value):
            raise Invalid(f"expected {wanted}", field=field)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _rising_shares(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(_number(w) and 1e-6 <= w <= 1 - 1e-6 for w in value)
        and sorted(set(value)) == value
    )


def _holds(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_number(v) and 0 <= v <= 604_800 for v in value)


_POLICY_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "slo_p99_s": (lambda v: _number(v) and 0 < v <= 86_400, "a number of seconds above 0"),
    "min_approvals": (lambda v: _whole(v, 1, 100), "a whole number of people, at least 1"),
    "max_rates_age_days": (lambda v: _whole(v, 1, 3_650), "a whole number of days, at least 1"),
    "max_imbalance": (lambda v: _number(v) and v >= 1, "a number; max/mean is never below 1"),
    "max_loss_imbalance": (lambda v: _number(v) and v >= 1, "a number; max/mean is never below 1"),
    "approval_days": (lambda v: _whole(v, 1, 365), "a whole number of days, at least 1"),
    "min_loads": (lambda v: _whole(v, 3, 100), "a whole number of loads, at least 3"),
    "min_seeds": (lambda v: _whole(v, 3, 100), "a whole number of seeds, at least 3"),
    "min_requests": (lambda v: _whole(v, 1_000, 10_000_000), "a whole number of requests, at least 1,000"),
    "accept_simulated": (lambda v: isinstance(v, bool), "true or false"),
    "canary_weights": (_rising_shares, "one or more rising shares between 0 and 1"),
    "canary_holds_s": (_holds, "seconds from 0 to a week: one for all steps, or one for each"),
    "canary_warmup_s": (lambda v: _number(v) and 0 <= v <= 86_400, "a number of seconds, 0 to 86,400"),
    "canary_min_requests": (lambda v: _whole(v, 1, 10**9), "a whole number of requests, at least 1"),
    "max_error_rate": (lambda v: _number(v) and 0 <= v <= 1, "a share from 0 to 1"),
    "auto_advance": (lambda v: isinstance(v, bool), "true or false"),
    "auto_abort": (lambda v: isinstance(v, bool), "true or false"),
    "auto_fall_back": (lambda v: isinstance(v, bool), "true or false"),
    "breaches_to_fall_back": (lambda v: _whole(v, 1, 1_000), "a whole number of checks, at least 1"),
    "cool_down_s": (lambda v: _number(v) and 0 <= v <= 604_800, "a number of seconds, 0 to a week"),
    "telemetry_stale_s": (lambda v: _number(v) and 30 <= v <= 86_400, "a number of seconds, 30 to 86,400"),
}
POLICY_FIELDS = tuple(_POLICY_RULES)


def policy_of(fleet: Fleet) -> JsonObject:
    """Return the policy as values, with its version number."""
    return {"version": fleet.policy_version, **{field: getattr(fleet, field) for field in POLICY_FIELDS}}


def check_steps(weights: list[float], holds: list[float]) -> None:
    """Refuse a number of holds that is neither one nor one for each step."""
    if len(holds) not in (1, len(weights)):
        raise Invalid(f"enter one hold, or one for each of the {len(weights)} steps", field="canary_holds_s")


def planned_steps(fleet: Fleet) -> list[dict[str, float]]:
    """Return the canary steps of the fleet's policy: share of keys, and hold in seconds."""
    holds = fleet.canary_holds_s
    return [
        {"weight": weight, "hold_s": holds[at] if len(holds) > 1 else holds[0]}
        for at, weight in enumerate(fleet.canary_weights)
    ]
