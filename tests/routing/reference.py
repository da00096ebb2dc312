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


def plain_placement(rates, sizes, capacity, available, load):
    """Members of each key in the order given; each share where (load + share) / capacity ends lowest."""
    members = []
    for rate, k in zip(rates, sizes, strict=True):
        share, chosen = rate / k, []
        for _ in range(k):
            free = [r for r in range(len(load)) if available[r] and r not in chosen]
            chosen.append(min(free, key=lambda r: ((load[r] + share) / capacity[r], r)))
        for r in chosen:
            load[r] += share
        members.append(sorted(chosen))
    return members


def plain_after_loss(table, rates, cold, lost):
    """Max/mean of the survivors, told from the published members and backups alone."""
    alive = [r for r in range(table.destinations) if table.available[r] and r != lost]
    if not alive:
        return float("inf")
    whole = sum(table.capacity[r] for r in alive)
    load = {r: cold[r] + cold[lost] * table.capacity[r] / whole for r in alive}
    for row, key in enumerate(table.admitted.tolist()):
        members = table.members_of(key).tolist()
        left = [r for r in members if r != lost] or [int(table.backup[row])]
        for r in left:
            load[r] += rates[key] / len(left)
    total = sum(load.values())
    return max(load[r] / table.capacity[r] for r in alive) * whole / total if total else 1.0
