"""Parts of a verdict beside its ladder: tenants, and what happened to the hit rate at faults and plan switches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from planner.analysis import t_interval
from planner.models import ReplayCell

# Tenants of a policy and load that a verdict lists, the busiest, beside those that were the worst of a seed.
LISTED_TENANTS = 20
OF_TENANT = ("hit_rate", "request_hit_rate", "p50_s", "p99_s")
OF_DIP = ("before", "depth_points", "duration_s")
CURVE_SUMS = ("requests", "prompt_tokens", "cached_tokens")

Figures = dict[str, Any]


class Cells:
    """Figures of cells by policy, load and seed; any of them may be missing."""

    def __init__(self, cells: Iterable[ReplayCell]) -> None:
        self._of: dict[str, dict[float, dict[int, Figures]]] = defaultdict(lambda: defaultdict(dict))
        for cell in cells:
            self._of[cell.policy][cell.load_rps][cell.seed] = cell.figures

    def loads(self, policy: str) -> list[float]:
        """Loads that the policy was run at, ascending."""
        return sorted(self._of[policy])

    def seeds(self, policy: str) -> list[int]:
        """Seeds that the policy was run with at any load, ascending."""
        return sorted({seed for of_seed in self._of[policy].values() for seed in of_seed})

    def at(self, policy: str, load: float) -> dict[int, Figures]:
        """Figures of each seed at a load, by ascending seed; none when it was not run there."""
        return dict(sorted(self._of[policy].get(load, {}).items()))

    def shared(self, policy: str, base: str, load: float) -> list[tuple[Figures, Figures]]:
        """Figures of both policies at a load, seed by seed that both have."""
        mine, other = self.at(policy, load), self.at(base, load)
        return [(mine[seed], other[seed]) for seed in mine if seed in other]


def mean_of(values: Iterable[float | None]) -> dict[str, Any] | None:
    """Mean and 95% t half-width over seeds; None without any value, and ``missing`` says how many seeds had none."""
    given = list(values)
    known = [value for value in given if value is not None]
    if not known:
        return None
    found = t_interval(known)
    missing = {"missing": len(given) - len(known)} if len(known) < len(given) else {}
    return {"mean": found.mean, "half": found.half_width, **missing}


def tenants_of(cells: Cells, policies: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Per policy, a row a load with its tenants, the busiest first; empty when no cell knows tenants."""
    found: dict[str, list[dict[str, Any]]] = {}
    for policy in policies:
        for load in cells.loads(policy):
            of_seed = [f["tenants"] for f in cells.at(policy, load).values() if f.get("tenants")]
            if of_seed:
                found.setdefault(policy, []).append({"load_rps": load, **_tenants_at(of_seed)})
    return found


def _tenants_at(of_seed: list[dict[str, Any]]) -> dict[str, Any]:
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for tenants in of_seed:
        for row in tenants["listed"]:
            rows[row["tenant"]].append(row)
    worst = Counter(tenants["worst"] for tenants in of_seed if tenants["worst"] is not None)
    sent = {name: sum(r["requests"] + r["unserved"] for r in of) / len(of_seed) for name, of in rows.items()}
    order = sorted(rows, key=lambda name: (-sent[name], name))
    listed = [name for at, name in enumerate(order) if at < LISTED_TENANTS or name in worst]
    count = max(tenants["count"] for tenants in of_seed)
    return {
        # Which requests arrive differs a little between seeds: the most of any seed.
        "count": count,
        "not_listed": max(0, count - len(listed)),
        **{name: max(tenants[name] for tenants in of_seed) for name in ("too_few", "without_tenant", "unserved")},
        "min_requests": of_seed[0]["min_requests"],
        "seeds": len(of_seed),
        "worst": dict(worst.most_common()),
        "rows": [
            {
                "tenant": name,
                "requests": sent[name],
                "worst_of_seeds": worst[name],
                **{figure: mean_of(row[figure] for row in rows[name]) for figure in OF_TENANT},
            }
            for name in listed
        ],
    }


def events_of(cells: Cells, policies: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Per policy, a row a load with the hit rate over time and the dip after each event; empty without events."""
    found: dict[str, list[dict[str, Any]]] = {}
    for policy in policies:
        for load in cells.loads(policy):
            of_seed = [f for f in cells.at(policy, load).values() if f.get("curve")]
            if of_seed:
                dips = [_dip(list(same)) for same in zip(*(f["dips"] for f in of_seed), strict=True)]
                curve = _add_up([f["curve"] for f in of_seed])
                found.setdefault(policy, []).append({"load_rps": load, "curve": curve, "dips": dips})
    return found


def _dip(of_seed: list[dict[str, Any]]) -> dict[str, Any]:
    """One event over all seeds: ``duration_s`` is of those that came back, ``censored`` counts those that did not."""
    means = {name: mean_of(dip[name] for dip in of_seed) for name in OF_DIP}
    return {
        **means,
        "at_s": sum(dip["at_s"] for dip in of_seed) / len(of_seed),
        "seen_s": min(dip["seen_s"] for dip in of_seed),
        "censored": sum(dip["censored"] for dip in of_seed),
        "of": len(of_seed),
    }


def _add_up(curves: list[dict[str, Any]]) -> dict[str, Any]:
    """The curves of all seeds in the same bins: widths are powers of two, so finer ones are brought to the coarsest."""
    width = max(curve["width_s"] for curve in curves)
    sums: dict[str, list[int]] = {name: [] for name in CURVE_SUMS}
    for curve in curves:
        times = round(width / curve["width_s"])
        for name, total in sums.items():
            for at, value in enumerate(curve[name]):
                if at // times == len(total):
                    total.append(0)
                total[at // times] += value
    return {"width_s": width, "warmup_s": sum(curve["warmup_s"] for curve in curves) / len(curves), **sums}
