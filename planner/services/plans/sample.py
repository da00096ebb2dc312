"""The sample of a first start: a fleet, a workload with the rate shape of the paper, a plan, its replay and gate.

All of it is generated from a seed and simulated, and every page that shows it says so.
"""

from __future__ import annotations

from django.contrib.auth.models import User

from planner.digests import canonical_json, digest
from planner.ingest import ImportedWorkload, Notice
from planner.models import Calibration, Fleet, Job, Plan, Workload
from planner.records import JsonObject
from planner.services.calibrations import calibrations
from planner.services.fleets import fleets
from planner.services.plans import orders as plan_orders
from planner.services.workloads import imports
from planner.services.workloads.traces import SYNTHETIC_LENGTHS
from planner.simulation.synthetic import (
    source_rate_shape,
    synthetic_key_names,
    synthetic_tenants,
    synthetic_trace,
)

SLUG = "demo"
DESTINATIONS = 30
ENGINE_PROFILE = "llama-3.3-70b-fp8-tp2-h100"
KEYS = 128_824
# A load that Flat-LB serves just within the SLO, so that the fleet starts healthy; its knee is near 70.
TOTAL_RPS = 64.0
TRACE: JsonObject = {
    "requests": 20_000,
    "active_keys": 512,
    **SYNTHETIC_LENGTHS,
    "seed": 20_260_819,
}
# Short steps, so that a newcomer sees a canary complete in minutes; the console activates the plan when all steps
# passed.
POLICY: JsonObject = {
    # A quarter is 900 requests a minute: two minutes give a p99, where a tenth would take ten.
    "canary_weights": [0.25, 0.5],
    "canary_holds_s": [90.0],
    "canary_warmup_s": 30.0,
    "canary_min_requests": 600,
    "auto_advance": True,
    "cool_down_s": 300.0,
}
REPLAY = {"loads_rps": [60.0, 120.0, 240.0], "seeds": [1, 2, 3], "requests": 20_000}


def create_fleet(*, acting_user: User) -> Fleet:
    """The sample fleet: 30 destinations with addresses where no server listens, judged by simulated evidence."""
    return fleets.create_fleet(
        acting_user=acting_user,
        slug=SLUG,
        name="Sample fleet",
        description="Simulated: generated key rates, a modelled engine, and traffic replayed in real time.",
        destinations=[(f"d{i:02d}", f"http://127.0.0.1:{9000 + i}") for i in range(DESTINATIONS)],
        engine_profile=ENGINE_PROFILE,
        accept_simulated=True,
        simulated_traffic=True,
        **POLICY,
    )


def create_workload(*, acting_user: User, fleet: Fleet) -> Workload:
    """128,824 keys with the rate shape of the paper, and a trace of requests to the keys of highest rate."""
    rates = source_rate_shape(KEYS, total_rps=TOTAL_RPS)
    trace = synthetic_trace(rates, load_rps=TOTAL_RPS, **TRACE)
    parameters: JsonObject = {"keys": KEYS, "total_rps": TOTAL_RPS, **TRACE}
    parsed = ImportedWorkload(
        format="generated",
        key_names=synthetic_key_names(KEYS),
        rates=rates,
        tenants=synthetic_tenants(KEYS, seed=int(TRACE["seed"])),
        trace=trace,
        window_s=float(trace.arrival_s[-1]),
        requests=len(trace),
        rows=KEYS,
        notices=[
            Notice("generated", KEYS, "Rates and requests were generated from a seed; nothing here was measured.", None)
        ],
        parameters=parameters,
        source_name="generated",
        source_sha256=digest(parameters),
        source_bytes=len(canonical_json(parameters)),
    )
    return imports.store_workload(
        acting_user=acting_user, fleet=fleet, parsed=parsed, name="Sample workload", simulated=True
    )


def order_plan(*, acting_user: User, fleet: Fleet, workload: Workload, calibration: Calibration) -> tuple[Plan, Job]:
    """Order a plan for the sample, with a replay after the build.

    Parameters
    ----------
    acting_user, fleet, workload, calibration
        As in `orders.order_plan`.

    Returns
    -------
    tuple of Plan and Job
        The queued plan, and the job of its build.
    """
    return plan_orders.order_plan(
        acting_user=acting_user,
        fleet=fleet,
        workload=workload,
        calibration=calibration,
        replay=REPLAY,
        note="The sample plan of the first start.",
    )


def calibrate(*, acting_user: User, fleet: Fleet, workload: Workload) -> Calibration:
    """Simulate a calibration of the sample's engine.

    Parameters
    ----------
    acting_user, fleet, workload
        As in `calibrations.simulate_calibration`.

    Returns
    -------
    Calibration
        The stored calibration, with the default options.
    """
    return calibrations.simulate_calibration(acting_user=acting_user, fleet=fleet, workload=workload)
