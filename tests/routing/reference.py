"""Algorithm 1 in plain Python, written from the rule and not from the kernels."""

from __future__ import annotations


def plain_table(rates, destinations, q_cap, slots, cold=None):
    """Return (admitted, members of each, load, used) by the rule, one step at a time."""
    sizes = []
    for rate in rates:
        k = 1
        while k < destinations and k * q_cap < rate:
            k += 1
        sizes.append(k)
    order = sorted(range(len(rates)), key=lambda b: (-rates[b], b))
    admitted, used = [], 0
    for b in order:
        if used + sizes[b] <= slots:
            admitted.append(b)
            used += sizes[b]
    load = [0.0] * destinations if cold is None else list(cold)
    members = []
    for b in admitted:
        lightest = sorted(range(destinations), key=lambda r: (load[r], r))[: sizes[b]]
        for r in lightest:
            load[r] += rates[b] / sizes[b]
        members.append(sorted(lightest))
    return admitted, members, load, used
