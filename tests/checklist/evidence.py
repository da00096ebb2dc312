"""Evidence that passes every check, as plain values, and the means to take one thing away."""

import copy
import datetime as dt

from planner import checklist
from planner.checklist import Live
from planner.checklist.evidence import Evidence

NOW = dt.datetime(2026, 3, 14, 10, 0, tzinfo=dt.UTC)
LIVE = Live(NOW, monitor_at=NOW - dt.timedelta(seconds=40), telemetry_at=NOW - dt.timedelta(seconds=60))
SYNTHETIC = {
    "active_keys": 512, "prefix_tokens": [3000.0, 0.4, 512, 16384], "suffix_tokens": [250.0, 0.6, 16, 2048],
    "output_tokens": [48.0, 0.5, 1, 400],
}  # fmt: skip

EQUAL = {"mean": 0.0, "half": 0.0, "excludes_zero": False}


def row(load, mean, half=0.1):
    apart = abs(mean) > half
    return {"load_rps": load, "mean": mean, "half": half, "excludes_zero": apart, "excludes_zero_all_loads": apart}


def policy(*p99):
    loads = zip((10, 20, 40), p99, strict=True)
    return {"loads": [{"load_rps": load, "p99_s": {"mean": p, "half": 0.1}, "refused": 0} for load, p in loads]}


def at_loads(*pairs):
    return {"loads": [{"load_rps": load, "p99_s": {"mean": p, "half": 0.1}, "refused": 0} for load, p in pairs]}


def document():
    return {
        "policy": {"max_rates_age_days": 7, "max_imbalance": 1.5, "max_loss_imbalance": 2.0, "accept_simulated": False,
                   "slo_p99_s": 3.5, "min_loads": 3, "min_seeds": 3, "min_requests": 1_000, "telemetry_stale_s": 180.0},
        "destinations_up": [0, 1, 2, 3],
        "capacity_up": [1.0, 1.0, 2.0, 1.0],
        "workload": {"measured_at": "2026-03-13T10:00:00+00:00", "measured_at_stated": True, "simulated": False,
                     "total_rps": 24.0},
        "calibration": {
            "source": "measured", "q_cap": 8.0, "q_cap_censored": "", "warm_slots": 48, "slots_measured": 60,
            "sweep_points": 8,
        },
        "plan": {
            "slots_per_destination": 48, "slots": 192, "slots_used": 190, "imbalance": 1.01, "cannot_fit": 0,
            "destinations": [0, 1, 2, 3], "capacity": [1.0, 1.0, 2.0, 1.0], "admitted": 190, "most_held": 50,
            "peak_use": 0.7, "worst_loss": 1.4,
        },
        "replan": None,
        "incumbent": None,
        "replay": {
            "policies": ["flat-lb", "cacheroute"], "loads_rps": [10, 20, 40], "seeds": [1, 2, 3], "slo_p99_s": 3.5,
            "synthetic_trace": None, "measured_requests": 16_000, "earlier_replays": 0,
            "capacity": {"cacheroute": ">=40", "flat-lb": "10"},
            "cacheroute": policy(1.0, 2.0, 3.0), "flat": policy(2.0, 9.0, 30.0),
            "against_flat": {
                "p99_s": [row(10, -1.0), row(20, -7.0), row(40, -27.0)],
                "hit_rate": [row(10, 0.5), row(20, 0.5), row(40, 0.5)],
                "capacity_steps": {"mean": 2.0, "half": 0.0, "excludes_zero": True},
            },
            "incumbent": None,
        },
        "envelope": {"p99_limit_s": 3.5, "load_low_rps": 10, "load_high_rps": 40, "active_keys": 200,
                     "max_imbalance": 1.5, "max_error_rate": 0.01},
        "distribution": {"plan": "r" * 64, "replay": "r" * 64, "calibration": None, "newer": None},
        "waivers": [],
        "fallback": {"ready": True},
        "fingerprints": {"fleet": "f" * 64, "calibration": "f" * 64, "plan": "f" * 64, "replay": "f" * 64},
    }  # fmt: skip


def passing():
    """Evidence that passes every check."""
    return Evidence.from_json(document())


def changed(**changes):
    """Passing evidence with paths changed."""
    evidence = copy.deepcopy(document())
    for path, value in changes.items():
        place = evidence
        *parents, last = path.split("__")
        for name in parents:
            place = place[name]
        place[last] = value
    return Evidence.from_json(evidence)


def verdict(item, *, live=LIVE, **changes):
    """One item of passing evidence with paths changed."""
    return checklist.judge_item(item, changed(**changes), live)
