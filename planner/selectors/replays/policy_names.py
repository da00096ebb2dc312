"""Names and order of policies on pages."""

from __future__ import annotations

CANDIDATE = "cacheroute"
POLICY_NAMES = {
    CANDIDATE: "CacheRoute",
    "flat-lb": "Flat-LB",
    "sticky": "Sticky",
    "chwbl": "CHWBL",
    "dualmap": "DualMap",
    "preble": "Preble",
    "preble-50": "Preble-50",
    "round-robin": "Round robin",
    "random": "Random",
    "least-outstanding": "Least outstanding",
    "hash": "Hash",
}


def policy_name(policy: str) -> str:
    """The name of a policy on pages; ``cacheroute@3`` is CacheRoute with plan 3 of the fleet."""
    base, _, plan = policy.partition("@")
    name = POLICY_NAMES.get(base, base)
    return f"{name}, plan {plan}" if plan else name


def in_order(policies: list[str]) -> list[str]:
    """The candidate first, Flat-LB second, then the others, other plans of the fleet last."""
    known = list(POLICY_NAMES)
    return sorted(policies, key=lambda p: ("@" in p, known.index(p) if p in known else len(known), p))
