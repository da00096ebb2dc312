"""Endless requests and one combined table for the traffic simulator."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.routing import RoutingTable, canary_share
from planner.simulation import Blocks, Trace

__all__ = ["canary_shares", "combined_table", "looped"]


def looped(trace: Trace, *, rate_rps: float, from_s: float, until_s: float) -> Trace:
    """Return the requests of a stretch of time of a trace that is played over and over at a rate.

    Lap 0 begins at second 0, so that stretches that follow each other fit together, whenever each of them is asked
    for. A block that one request alone has is another one in every lap: nobody asks the same question twice.

    Parameters
    ----------
    trace : Trace
        At least one request.
    rate_rps : float
        Requests/s; gaps are the trace's own, scaled.
    from_s, until_s : float
        The stretch, ``[from_s, until_s)``, seconds; arrivals of the result count from ``from_s``.

    Returns
    -------
    Trace
        The requests of the stretch, by arrival; possibly none.
    """
    n = len(trace)
    lap_s = n / rate_rps
    place = trace.arrival_s - trace.arrival_s[0]
    # Requests that all arrive at one instant have no gaps to keep.
    gaps = n > 1 and place[-1] > 0
    place = place * ((n - 1) / rate_rps / place[-1]) if gaps else np.arange(n) / rate_rps
    offsets, ids = trace.blocks
    own = _occurs_once(ids)
    first = math.floor(from_s / lap_s)
    parts = []
    for lap in range(first, math.floor(until_s / lap_s) + 1):
        begin = lap * lap_s - from_s
        rows = slice(*np.searchsorted(begin + place, [0.0, until_s - from_s]).tolist())
        if rows.start < rows.stop:
            parts.append((begin, rows, lap - first))
    kept = [slice(int(offsets[rows.start]), int(offsets[rows.stop])) for _, rows, _ in parts]
    step = int(ids.max()) + 1 if len(ids) else 1
    lengths = np.concatenate([np.zeros(1, dtype=np.int64), *[np.diff(offsets)[rows] for _, rows, _ in parts]])
    return Trace(
        arrival_s=np.concatenate([np.zeros(0), *[begin + place[rows] for begin, rows, _ in parts]]),
        key=_joined([trace.key[rows] for _, rows, _ in parts]),
        blocks=Blocks(
            np.cumsum(lengths),
            _joined([ids[part] + own[part] * (step * lap) for part, (_, _, lap) in zip(kept, parts, strict=True)]),
        ),
        prompt_tokens=_joined([trace.prompt_tokens[rows] for _, rows, _ in parts]),
        output_tokens=_joined([trace.output_tokens[rows] for _, rows, _ in parts]),
        block_tokens=trace.block_tokens,
        key_names=trace.key_names,
    )


def _occurs_once(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    _, place, count = np.unique(ids, return_inverse=True, return_counts=True)
    return (count[place] == 1).astype(np.int64)


def _joined(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def canary_shares(salt: str, names: Sequence[str]) -> NDArray[np.float64]:
    """Return the place of each key in ``[0, 1)``: a canary takes the keys below its weight, as in every router."""
    return np.array([canary_share(salt, name) for name in names], dtype=np.float64)


def combined_table(
    arms: Sequence[tuple[NDArray[np.bool_], Sequence[str], RoutingTable, Sequence[int]]],
    names: Sequence[str],
    destinations: int,
) -> RoutingTable:
    """Return one table that routes each key by the arm that it belongs to.

    Parameters
    ----------
    arms : sequence of (bool[K], names, table, indices)
        Which keys the arm takes; the names of the table's admitted keys, in their order; the table; and the index in
        the fleet of each of its destinations. Flat-LB is an arm that is not listed: keys in no table are cold.
    names : sequence of str
        The K keys.
    destinations : int
        Of the fleet.

    Returns
    -------
    RoutingTable
        Over all destinations of the fleet, by their index. Its planned loads and rates are 0.
    """
    index = {name: at for at, name in enumerate(names)}
    admitted: list[int] = []
    backup: list[int] = []
    members: list[NDArray[np.int32]] = []
    for takes, its_names, table, place in arms:
        of = np.asarray(place, dtype=np.int32)
        for row, name in enumerate(its_names):
            key = index.get(name, -1)
            if key < 0 or not takes[key]:
                continue
            admitted.append(key)
            members.append(np.sort(of[table.members[table.offsets[row] : table.offsets[row + 1]]]))
            backup.append(int(of[table.backup[row]]) if table.backup[row] >= 0 else -1)
    replicas = np.array([len(row) for row in members], dtype=np.int64)
    return RoutingTable(
        admitted=np.array(admitted, dtype=np.int64),
        offsets=np.concatenate(([0], np.cumsum(replicas))).astype(np.int64),
        members=np.concatenate([np.zeros(0, dtype=np.int32), *members]),
        replicas=replicas,
        load=np.zeros(destinations),
        imbalance=1.0,
        slots_used=int(replicas.sum()),
        admitted_rate=0.0,
        backup=np.array(backup, dtype=np.int32),
        destinations=destinations,
        q_cap=1.0,
        slots=int(replicas.sum()),
        cannot_fit=np.zeros(0, dtype=np.int64),
        total_rate=0.0,
        keys=len(names),
    )
