"""Parts of a verdict other than the ladder: tenants, and the effect of faults and plan switches on the hit rate."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from msgspec import UNSET, UnsetType

from planner.analysis import t_interval
from planner.analysis.cell import CellCurve, CellDip, CellFigures, CellTenants, TenantFigures
from planner.analysis.verdict import Curve, DipOfSeeds, EventsAtLoad, MeanOfSeeds, TenantOfSeeds, TenantsAtLoad
from planner.models import ReplayCell

# Tenants of a policy and load that a verdict lists: the tenants with the most requests, and the worst tenant of each
# seed.
LISTED_TENANTS = 20


class Cells:
    """Figures of cells by policy, load and seed; any of them may be missing."""

    def __init__(self, cells: Iterable[ReplayCell]) -> None:
        self._of: dict[str, dict[float, dict[int, CellFigures]]] = defaultdict(lambda: defaultdict(dict))
        for cell in cells:
            self._of[cell.policy][cell.load_rps][cell.seed] = CellFigures.from_json(cell.figures)

    def loads(self, policy: str) -> list[float]:
        """Loads that the policy was run at, ascending."""
        return sorted(self._of[policy])

    def seeds(self, policy: str) -> list[int]:
        """Seeds that the policy was run with at any load, ascending."""
        return sorted({seed for of_seed in self._of[policy].values() for seed in of_seed})

    def at(self, policy: str, load: float) -> dict[int, CellFigures]:
        """Figures of each seed at a load, by ascending seed; none when it was not run there."""
        return dict(sorted(self._of[policy].get(load, {}).items()))

    def shared(self, policy: str, base: str, load: float) -> list[tuple[CellFigures, CellFigures]]:
        """Return the figures of two policies at a load, for the seeds that both have.

        Parameters
        ----------
        policy, base
            Names of the two policies.
        load
            Requests/s.

        Returns
        -------
        list of tuple
            For each seed, ascending, the figures of `policy` and of `base`.
        """
        mine, other = self.at(policy, load), self.at(base, load)
        return [(mine[seed], other[seed]) for seed in mine if seed in other]


def mean_of(values: Iterable[float | None]) -> MeanOfSeeds | None:
    """Mean and 95% t half-width over seeds; None without any value, and ``missing`` is the number of seeds without."""
    given = list(values)
    known = [value for value in given if value is not None]
    if not known:
        return None
    found = t_interval(known)
    missing = len(given) - len(known)
    return MeanOfSeeds(mean=found.mean, half=found.half_width, missing=missing or UNSET)


def tenants_of(cells: Cells, policies: list[str]) -> dict[str, tuple[TenantsAtLoad, ...]]:
    """Per policy, its tenants at each load, the most requests first; empty when no cell has tenants."""
    found: dict[str, tuple[TenantsAtLoad, ...]] = {}
    for policy in policies:
        for load in cells.loads(policy):
            of_seed = [f.tenants for f in cells.at(policy, load).values() if isinstance(f.tenants, CellTenants)]
            if of_seed:
                found[policy] = (*found.get(policy, ()), _tenants_at(load, of_seed))
    return found


def _tenants_at(load: float, of_seed: list[CellTenants]) -> TenantsAtLoad:
    rows: dict[str, list[TenantFigures]] = defaultdict(list)
    for tenants in of_seed:
        for row in tenants.listed:
            rows[row.tenant].append(row)
    worst = Counter(tenants.worst for tenants in of_seed if tenants.worst is not None)
    sent = {name: sum(r.requests + r.unserved for r in of) / len(of_seed) for name, of in rows.items()}
    order = sorted(rows, key=lambda name: (-sent[name], name))
    listed = [name for at, name in enumerate(order) if at < LISTED_TENANTS or name in worst]
    count = max(tenants.count for tenants in of_seed)
    return TenantsAtLoad(
        load_rps=load,
        # Seeds draw slightly different requests: take the maximum over seeds.
        count=count,
        not_listed=max(0, count - len(listed)),
        too_few=max(tenants.too_few for tenants in of_seed),
        without_tenant=max(tenants.without_tenant for tenants in of_seed),
        unserved=max(tenants.unserved for tenants in of_seed),
        min_requests=of_seed[0].min_requests,
        seeds=len(of_seed),
        worst=dict(worst.most_common()),
        rows=tuple(
            TenantOfSeeds(
                tenant=name,
                requests=sent[name],
                worst_of_seeds=worst[name],
                hit_rate=mean_of(row.hit_rate for row in rows[name]),
                request_hit_rate=mean_of(row.request_hit_rate for row in rows[name]),
                p50_s=mean_of(row.p50_s for row in rows[name]),
                p99_s=mean_of(row.p99_s for row in rows[name]),
            )
            for name in listed
        ),
    )


def events_of(cells: Cells, policies: list[str]) -> dict[str, tuple[EventsAtLoad, ...]]:
    """Per policy and load, the hit rate over time and the dip after each event; empty without events."""
    found: dict[str, tuple[EventsAtLoad, ...]] = {}
    for policy in policies:
        for load in cells.loads(policy):
            of_seed = list(cells.at(policy, load).values())
            curves = [f.curve for f in of_seed if isinstance(f.curve, CellCurve)]
            dips = [f.dips for f in of_seed if not isinstance(f.dips, UnsetType)]
            if curves:
                row = EventsAtLoad(
                    load_rps=load,
                    curve=_add_up(curves),
                    dips=tuple(_dip(list(same)) for same in zip(*dips, strict=True)),
                )
                found[policy] = (*found.get(policy, ()), row)
    return found


def _dip(of_seed: list[CellDip]) -> DipOfSeeds:
    """One event over all seeds."""
    return DipOfSeeds(
        before=mean_of(dip.before for dip in of_seed),
        depth_points=mean_of(dip.depth_points for dip in of_seed),
        duration_s=mean_of(dip.duration_s for dip in of_seed),
        at_s=sum(dip.at_s for dip in of_seed) / len(of_seed),
        seen_s=min(dip.seen_s for dip in of_seed),
        censored=sum(dip.censored for dip in of_seed),
        of=len(of_seed),
    )


def _add_up(curves: list[CellCurve]) -> Curve:
    """The curves of all seeds in the same bins: widths are powers of two, so finer curves are merged."""
    width = max(curve.width_s for curve in curves)
    sums: dict[str, list[int]] = {"requests": [], "prompt_tokens": [], "cached_tokens": []}
    for curve in curves:
        times = round(width / curve.width_s)
        for name, total in sums.items():
            for at, value in enumerate(getattr(curve, name)):
                if at // times == len(total):
                    total.append(0)
                total[at // times] += value
    return Curve(
        width_s=width,
        warmup_s=sum(curve.warmup_s for curve in curves) / len(curves),
        requests=tuple(sums["requests"]),
        prompt_tokens=tuple(sums["prompt_tokens"]),
        cached_tokens=tuple(sums["cached_tokens"]),
    )
