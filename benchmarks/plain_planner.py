"""Algorithm 1 in plain Python with ``heapq``: the baseline of the planner's times."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable


def plain_build(rates: list[float], destinations: int, q_cap: float, slots: int) -> list[list[int]]:
    """Return the members of each admitted key, in descending rate; no backups and no figures.

    The work is minimal: the loop sizes keys one by one and ends when the last slot is taken. Where few of many keys
    can be admitted, a heap selects them instead of a full sort.

    Parameters
    ----------
    rates : list of float
        Requests/s of each key.
    destinations, q_cap, slots
        As in `planner.routing.build_table`.

    Returns
    -------
    list of list of int
        Ascending destinations of each admitted key.
    """
    admitted, sizes, used = [], [], 0
    for b in _descending(rates, slots, q_cap):
        if used == slots:
            break
        rate = rates[b]
        k = max(1, math.ceil(rate / q_cap))
        if k > 1:
            k -= (k - 1) * q_cap >= rate
            k += k * q_cap < rate
            k = min(k, destinations)
        if used + k <= slots:
            used += k
            admitted.append(b)
            sizes.append(k)
    cold = math.fsum(rates) - math.fsum(rates[b] for b in admitted)
    heap = [(cold / destinations, r) for r in range(destinations)]
    members = []
    for b, k in zip(admitted, sizes, strict=True):
        rate = rates[b]
        if k == 1:
            load, r = heap[0]
            heapq.heapreplace(heap, (load + rate, r))
            members.append([r])
            continue
        taken = [heapq.heappop(heap) for _ in range(k)]
        for load, r in taken:
            heapq.heappush(heap, (load + rate / k, r))
        members.append(sorted(r for _, r in taken))
    return members


def _descending(rates: list[float], slots: int, q_cap: float) -> Iterable[int]:
    if 20 * slots < len(rates):
        count = slots + sum(rate > q_cap for rate in rates)
        return [-b for _, b in heapq.nlargest(count, zip(rates, range(0, -len(rates), -1), strict=True))]
    return sorted(range(len(rates)), key=rates.__getitem__, reverse=True)  # stable: ties on the lower index
