"""Options of a replay: each is checked, and an error names the field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planner.errors import Conflict, Invalid
from planner.models import BASELINE, CANDIDATE, Fleet, Plan, PlanState, Replay, Workload
from planner.records import JsonObject
from planner.routing import POLICIES
from planner.selectors.replays.other_plans import other_plan, table_of, with_unknown
from planner.selectors.rollouts.incumbents import incumbent_of, why_apart
from planner.services.replays.events import check_faults, check_switch
from planner.services.replays.policy_parameters import PolicyParameters, check_parameters
from planner.services.workloads import traces
from planner.simulation.options import FaultOption, OtherPlan, ReplayOptions, SwitchOption, SyntheticRequests

DEFAULT_POLICIES = ("flat-lb", "sticky", "cacheroute")
DEFAULT_SEEDS = (1, 2, 3)
# Default loads, as shares of what the destinations (each by its speed) can serve at the calibrated knee.
DEFAULT_LOAD_SHARES = (0.4, 0.7, 1.0)
MAX_CELLS = 2_000
MAX_ROUNDS = 12
MIN_LOAD_RPS, MAX_LOAD_RPS = 1e-6, 1e8
LOADS_IN_WORDS = f"{MIN_LOAD_RPS:g} to {MAX_LOAD_RPS:g}".replace("e-0", "e-").replace("e+0", "e")
ARRIVALS = ("poisson", "scaled", "gamma", "bootstrap")
# Requests that a cell must measure after the warm-up: with fewer, a 95th percentile has no meaning.
MIN_MEASURED = 20


def check_options(plan: Plan, **options: Any) -> ReplayOptions:
    """Check the options as `chosen` does, for a plan that can be replayed now; count the unknown keys of other plans.

    Reads the names of keys from storage where another plan has another workload, after all other checks.

    Raises
    ------
    Invalid
        As `chosen`; also for another plan when the workload of this plan has none of its keys.
    Conflict
        When the state of the plan, or a replay that is queued or running, does not allow it.
    """
    found = chosen(plan, **options)
    if plan.pk is not None:
        _check_state(plan, what_if=bool(found.what_if))
    return with_unknown_keys(plan, found)


def _check_state(plan: Plan, *, what_if: bool) -> None:
    """Check early, before files are read, what is checked again under the lock of the plan."""
    running = plan.replays.filter(state=Replay.State.RUNNING).defer("verdict").first()
    if running is not None:
        raise Conflict(f"{running} is queued or running: wait for it or cancel it")
    state = PlanState(plan.state)
    if what_if and state not in Plan.BUILT:
        raise Conflict(f"{plan} is {plan.get_state_display()}: it cannot be replayed")
    if not what_if and not state.may_become(PlanState.REPLAYING):
        raise Conflict(f"{plan} is {plan.get_state_display()}; it cannot become {PlanState.REPLAYING.label}")


def with_unknown_keys(plan: Plan, found: ReplayOptions) -> ReplayOptions:
    """Return the options with the number of ``keys`` of each other plan, and of its keys ``unknown`` to the workload.

    Reads storage: never call it with a row locked.
    """
    assert plan.workload is not None  # A database constraint of this kind of plan.
    rates = plan.workload.rates
    also, policies = [], list(found.policies)
    for at, other in enumerate(found.also):
        try:
            also.append(with_unknown(other, rates, field=f"also/{at}"))
        except Invalid:
            if other.live is not True:
                raise
            # The plan was added by default, not ordered: a check of the checklist reports that it is missing.
            policies.remove(f"{CANDIDATE}@{other.plan}")
    switch = found.switch and with_unknown(found.switch, rates, field="switch/from_plan")
    return replace(found, policies=tuple(policies), also=tuple(also), switch=switch)


def check_others(
    fleet: Fleet,
    workload: Workload,
    *,
    also: list[int] | None = None,
    switch: JsonObject | None = None,
    **_: Any,
) -> None:
    """Refuse other plans that share no key with a workload, for a plan that is being ordered; `chosen` checks the rest.

    Reads storage: never call it with the fleet locked.

    Parameters
    ----------
    fleet, workload
        The fleet of the other plans, and the workload of the ordered plan.
    also
        Numbers of other plans of the fleet.
    switch
        The plan switch of the replay; ``from_plan`` is the number of another plan.
    **_
        Options that name no other plan; not checked.

    Raises
    ------
    Invalid
        When there is no plan with a table of a number, or the workload has none of its keys; `field` names it.
    ArtifactLost
        When the rates or a table cannot be read from storage.
    """
    named: list[tuple[str, Any]] = [(f"also/{at}", number) for at, number in enumerate(dict.fromkeys(also or []))]
    named += [("switch/from_plan", switch.get("from_plan"))] if switch else []
    for field, number in named:
        other = table_of(fleet, number, field=field)
        assert other.table is not None  # table_of returns no other kind.
        with_unknown(OtherPlan(plan=number, table=other.table.digest), workload.rates, field=field)


def chosen(
    plan: Plan,
    *,
    policies: list[str] | None = None,
    policy_parameters: PolicyParameters | None = None,
    loads_rps: list[float] | None = None,
    seeds: list[int] | None = None,
    arrivals: str = "poisson",
    cv: float | None = None,
    run_length: int | None = None,
    requests: int = 20_000,
    warmup: float = 0.2,
    faults: Sequence[JsonObject] | None = None,
    switch: JsonObject | None = None,
    also: list[int] | None = None,
    refine: int = 0,
    extend: bool = False,
) -> ReplayOptions:
    """Return the options of a replay with their defaults.

    Flat-LB and the candidate are always among the policies: without both there is nothing to compare. The active plan
    is too, where it can be replayed on the same destinations and the replay is not a what-if: the checklist compares
    the candidate with it. Nothing is read from storage. The state of the plan is not checked: the plan may still be
    unbuilt.

    Parameters
    ----------
    plan
        The candidate; it has a calibration.
    policies
        Names in `POLICIES`; by default Flat-LB, Sticky and the candidate.
    policy_parameters
        Parameters that differ from their defaults: ``{"chwbl": {"load_factor": 1.5}}``.
    loads_rps
        Requests/s, 1e-6 to 1e8; by default 0.4, 0.7 and 1 times the capacity at the knee, and the load of the workload.
    seeds
        Whole numbers from 0 to 2^31 - 1; by default 1, 2 and 3.
    arrivals
        One of `ARRIVALS`. "scaled" takes one seed only.
    cv, run_length
        The coefficient of variation of gamma gaps; the gaps in one run of the bootstrap.
    requests
        Number of requests of a cell, 100 to 5,000,000.
    warmup
        Share of the requests before the measurement, from 0 to below 1.
    faults
        As `events.check_faults` takes them; times are shares of the arrivals' span, so that they mean the same at every
        load.
    switch
        ``{"from_plan": 3, "at": 0.5}``: plan 3 of the fleet is active until half of the span, this plan after it.
    also
        Numbers of other built plans of the fleet, replayed too as ``cacheroute@<number>``. With an older plan, the
        paired differences show the effect of its age.
    refine, extend
        Rounds of bisection (0 to 12) between the passing and failing loads of each policy after the ladder is done, and
        whether loads are also added beyond an open end of the ladder (with at least one round).

    Returns
    -------
    ReplayOptions
        Every option, loads and seeds ascending; ``what_if`` names why the replay is not evidence, if it is not.

    Raises
    ------
    Invalid
        For an option that cannot be used, or more than 2,000 cells; `field` names it.
    """
    assert plan.calibration is not None  # A database constraint of this kind of plan.
    names = list(dict.fromkeys([BASELINE, CANDIDATE, *(policies or DEFAULT_POLICIES)]))
    for name in names:
        if name not in POLICIES:
            raise Invalid(f"{name!r} is not one of {', '.join(POLICIES)}", field="policies")
    given = check_parameters(names, policy_parameters or {})
    capacity = plan.calibration.q_cap * sum(plan.capacity)
    loads = sorted(set(loads_rps or _default_loads(capacity, plan.workload.total_rps if plan.workload else 0.0)))
    if any(not MIN_LOAD_RPS <= load <= MAX_LOAD_RPS for load in loads):
        raise Invalid(f"enter loads from {LOADS_IN_WORDS} requests/s", field="loads_rps")
    seeds = sorted(set(seeds or DEFAULT_SEEDS))
    if any(not 0 <= seed < 2**31 for seed in seeds):
        raise Invalid("seeds are whole numbers from 0 to 2^31 - 1", field="seeds")
    _check_arrivals(arrivals, seeds, cv, run_length)
    if not 100 <= requests <= 5_000_000:
        raise Invalid("replay between 100 and 5,000,000 requests", field="requests")
    if not 0 <= warmup < 1:
        raise Invalid("the warm-up is a share of the requests, from 0 to below 1", field="warmup")
    if not 0 <= refine <= MAX_ROUNDS:
        raise Invalid(f"rounds of bisection are a whole number from 0 to {MAX_ROUNDS}", field="refine")
    if extend and not refine:
        raise Invalid("rounds of bisection follow an open end; say how many with refine", field="extend")
    events = check_faults(plan, faults or [])
    switched = check_switch(plan, switch) if switch is not None else None
    what_if = _what_if(given, events, switched)
    others = _others(plan, also or [], switched)
    if not what_if:
        others += _live(plan, others)
    labels = [*names, *(f"{CANDIDATE}@{other.plan}" for other in others)]
    if len(labels) * (len(loads) + refine) * len(seeds) > MAX_CELLS:
        raise Invalid(f"more than {MAX_CELLS} cells; take fewer loads or seeds", field="loads_rps")
    return ReplayOptions(
        policies=tuple(labels),
        policy_parameters=given,
        loads_rps=tuple(loads),
        seeds=tuple(seeds),
        arrivals=arrivals,
        cv=cv,
        run_length=run_length,
        requests=requests,
        warmup=warmup,
        faults=events,
        switch=switched,
        also=tuple(others),
        refine=refine,
        extend=extend,
        what_if=tuple(what_if),
    )


def _default_loads(capacity: float, own_rps: float) -> list[float]:
    """Shares of what the destinations can serve, and the rate of the workload itself."""
    loads = [float(f"{capacity * share:.3g}") for share in DEFAULT_LOAD_SHARES]
    # Loads within a tenth of each other are too close to add information.
    if own_rps > 0 and all(abs(own_rps - load) > 0.1 * load for load in loads):
        loads.append(float(f"{own_rps:.3g}"))
    return loads


def _check_arrivals(arrivals: str, seeds: list[int], cv: float | None, run_length: int | None) -> None:
    if arrivals not in ARRIVALS:
        raise Invalid(f"{arrivals!r} is not one of {', '.join(ARRIVALS)}", field="arrivals")
    if arrivals == "scaled" and len(seeds) > 1:
        raise Invalid(
            "the trace's own gaps, scaled, are the same for every seed; give one seed, or other arrivals",
            field="seeds",
        )
    if (arrivals == "gamma") != (cv is not None):
        raise Invalid("gamma arrivals need their coefficient of variation, and no others have one", field="cv")
    if cv is not None and not 0 < cv < 1e3:
        raise Invalid("the coefficient of variation is a number above 0", field="cv")
    if run_length is not None and arrivals != "bootstrap":
        raise Invalid("only bootstrap arrivals are drawn in runs", field="run_length")
    if run_length is not None and run_length < 1:
        raise Invalid("a run has at least one gap", field="run_length")


def _others(plan: Plan, numbers: list[int], switched: SwitchOption | None) -> list[OtherPlan]:
    """The other plans, each with the digest of its table; the plan itself only beside its own plan switch."""
    found = []
    for at, number in enumerate(dict.fromkeys(numbers)):
        if number == plan.number and switched is None:
            raise Invalid(f"plan {number} is already the candidate", field=f"also/{at}")
        found.append(other_plan(plan, number, field=f"also/{at}"))
    return found


def _live(plan: Plan, others: list[OtherPlan]) -> list[OtherPlan]:
    """The active plan, unless it is among the others already or cannot be replayed here."""
    incumbent = incumbent_of(plan)
    if incumbent is None or incumbent.number in [other.plan for other in others] or why_apart(plan, incumbent):
        return []
    assert incumbent.table is not None  # It is active.
    return [OtherPlan(plan=incumbent.number, id=incumbent.pk, table=incumbent.table.digest, live=True)]


def _what_if(given: PolicyParameters, faults: Sequence[FaultOption], switched: SwitchOption | None) -> list[str]:
    """Why the replay is not evidence for the checklist; empty when it is."""
    reasons = ["faults"] if faults else []
    reasons += ["a plan switch"] if switched else []
    return reasons + [f"other parameters of {name}" for name in (CANDIDATE, BASELINE) if given.get(name)]


def check_requests(
    workload: Workload,
    *,
    requests: int = 20_000,
    warmup: float = 0.2,
    arrivals: str = "poisson",
    run_length: int | None = None,
    **_: Any,
) -> SyntheticRequests | None:
    """Check the options that depend on the requests, and return how requests are generated where there is no trace.

    `chosen` checks the other options. Reads rates or arrivals from storage: never call it with the fleet locked,
    because a fallback would wait for it.

    Parameters
    ----------
    workload
        The workload of the plan.
    requests
        Number of requests of a cell; a trace with fewer is replayed whole.
    warmup
        Share of the requests before the measurement, from 0 to below 1. At least 20 requests must be left after it.
    arrivals, run_length
        Kind of arrivals, and the gaps in one run of the bootstrap. "scaled" and "bootstrap" need requests at two or
        more different times.
    **_
        Options that do not depend on the requests; not checked.

    Returns
    -------
    SyntheticRequests or None
        Settings of synthetic requests; None for a workload with a trace.

    Raises
    ------
    Invalid
        For a workload without requests, or an option for which its requests are not enough; `field` names it.
    ArtifactLost
        When the rates or arrivals cannot be read from storage.
    """
    if workload.trace_id is not None and workload.request_count < 1:
        raise Invalid(f"workload {workload.name} has a trace without requests", field="plan")
    try:
        synthetic = traces.synthetic_settings(workload, requests)
    except ValueError as error:
        raise Invalid(str(error), field="plan") from error
    count = requests if synthetic else min(requests, workload.request_count)
    measured = count - int(warmup * count)
    if measured < MIN_MEASURED:
        raise Invalid(
            f"of {count:,} requests {measured:,} are left after the warm-up; at least {MIN_MEASURED} are needed",
            field="warmup" if count >= MIN_MEASURED else "requests",
        )
    if run_length is not None and run_length >= count:
        raise Invalid(f"{count:,} requests have {count - 1:,} gaps, no run of that length", field="run_length")
    if arrivals in ("scaled", "bootstrap") and not traces.has_gaps(workload, count):
        raise Invalid(
            f"the first {count:,} requests of {workload.name} arrive at one instant: there are no gaps to "
            f"{'scale' if arrivals == 'scaled' else 'draw from'}; take poisson or gamma arrivals",
            field="arrivals",
        )
    return synthetic


def check_requests_of(workload: Workload, options: ReplayOptions) -> SyntheticRequests | None:
    """`check_requests` with checked options."""
    return check_requests(
        workload,
        requests=options.requests,
        warmup=options.warmup,
        arrivals=options.arrivals,
        run_length=options.run_length,
    )
