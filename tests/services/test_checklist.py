"""The six judgements over plain evidence. Every test starts from evidence that passes and takes one thing away."""

import copy
import datetime as dt
from pathlib import Path

import pytest

from planner.services import checks
from planner.services.checks import CHECKS, FAIL, MISSING, PASS, Live

NOW = dt.datetime(2026, 3, 14, 10, 0, tzinfo=dt.UTC)
LIVE = Live(NOW, monitor_at=NOW - dt.timedelta(seconds=40), telemetry_at=NOW - dt.timedelta(seconds=60))


SYNTHETIC = {
    "active_keys": 512, "prefix_tokens": [3000.0, 0.4, 512, 16384], "suffix_tokens": [250.0, 0.6, 16, 2048],
    "output_tokens": [48.0, 0.5, 1, 400],
}  # fmt: skip


def row(load, mean, half=0.1):
    apart = abs(mean) > half
    return {"load_rps": load, "mean": mean, "half": half, "excludes_zero": apart, "excludes_zero_all_loads": apart}


def policy(*p99):
    loads = zip((10, 20, 40), p99, strict=True)
    return {"loads": [{"load_rps": load, "p99_s": {"mean": p, "half": 0.1}, "refused": 0} for load, p in loads]}


def at_loads(*pairs):
    return {"loads": [{"load_rps": load, "p99_s": {"mean": p, "half": 0.1}, "refused": 0} for load, p in pairs]}


def passing():
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


def changed(**changes):
    """Passing evidence with paths changed."""
    evidence = copy.deepcopy(passing())
    for path, value in changes.items():
        place = evidence
        *parents, last = path.split("__")
        for name in parents:
            place = place[name]
        place[last] = value
    return evidence


def verdict(item, *, live=LIVE, **changes):
    """One item of passing evidence with paths changed."""
    return checks.judge_item(item, changed(**changes), live)


def test_complete_evidence_passes_all_six_items():
    items = checks.judge(passing(), LIVE)
    assert [item.verdict for item in items] == [PASS] * 6
    assert checks.passed(items)
    assert all(item.explanation for item in items)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"workload__measured_at": "2026-03-06T10:00:00+00:00"}, FAIL),
        ({"workload__measured_at": "2026-03-15T10:00:00+00:00"}, MISSING),
        ({"workload__measured_at_stated": False}, MISSING),
        ({"calibration__q_cap_censored": "right"}, MISSING),
        ({"calibration__q_cap_censored": "left"}, MISSING),
        ({"calibration__source": "simulated"}, MISSING),
        ({"workload__simulated": True}, MISSING),
        ({"workload__simulated": True, "policy__accept_simulated": True}, PASS),
    ],
)
def test_item_1_wants_recent_measured_rates_and_an_uncensored_q_cap(changes, expected):
    assert verdict(1, **changes).verdict == expected


def test_item_1_says_simulated_where_it_accepts_it():
    found = verdict(1, calibration__source="simulated", policy__accept_simulated=True)
    assert "Simulated q_cap" in found.explanation


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"plan__slots_per_destination": 49}, FAIL),
        ({"plan__slots_used": 193}, FAIL),
        ({"calibration__slots_measured": 48}, FAIL),
        ({"plan__imbalance": 1.51}, FAIL),
        ({"plan__imbalance": 1.5}, PASS),
        ({"plan__cannot_fit": 1}, FAIL),
        ({"plan__most_held": 59}, PASS),
        ({"plan__most_held": 60}, FAIL),
        ({"plan__most_held": None}, MISSING),
        ({"plan__peak_use": 1.0}, PASS),
        ({"plan__peak_use": 1.01}, FAIL),
        ({"plan__peak_use": None}, MISSING),
        ({"plan__admitted": 0, "plan__most_held": 0}, FAIL),
    ],
)
def test_item_2_wants_w_within_what_was_measured_and_the_load_balanced(changes, expected):
    assert verdict(2, **changes).verdict == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"replay": None}, MISSING),
        ({"replay__policies": ["cacheroute"]}, MISSING),
        ({"replay__seeds": [1, 2]}, MISSING),
        ({"replay__loads_rps": [10, 20]}, MISSING),
        ({"replay__measured_requests": 999}, MISSING),
        ({"policy__slo_p99_s": 2.0}, MISSING),
        ({"replay__synthetic_trace": SYNTHETIC}, MISSING),
        ({"replay__synthetic_trace": SYNTHETIC, "policy__accept_simulated": True}, PASS),
        ({"replay__cacheroute": policy(3.6, 4.0, 9.0)}, FAIL),
    ],
)
def test_item_3_wants_both_policies_at_three_loads_and_seeds_within_the_slo(changes, expected):
    assert verdict(3, **changes).verdict == expected


EQUAL = {"mean": 0.0, "half": 0.0, "excludes_zero": False}


def test_item_4_a_higher_hit_rate_alone_fails():
    found = verdict(
        4,
        replay__against_flat__capacity_steps=EQUAL,
        replay__against_flat__p99_s=[row(10, -0.05), row(20, 0.02), row(40, -0.01)],
    )
    assert found.verdict == FAIL
    assert "Only the hit rate" in found.explanation


def test_item_4_intervals_that_straddle_zero_are_missing_evidence():
    found = verdict(
        4,
        replay__against_flat__capacity_steps=EQUAL,
        replay__against_flat__p99_s=[row(10, -0.05), row(20, 0.02), row(40, -0.01)],
        replay__against_flat__hit_rate=[row(10, 0.05), row(20, 0.05), row(40, 0.05)],
    )
    assert found.verdict == MISSING


def test_item_4_a_better_p99_passes_at_equal_capacity():
    found = verdict(4, replay__against_flat__capacity_steps=EQUAL)
    assert found.verdict == PASS


def test_item_4_a_lower_capacity_fails_whatever_the_p99():
    steps = {"mean": -1.0, "half": 0.0, "excludes_zero": True}
    assert verdict(4, replay__against_flat__capacity_steps=steps).verdict == FAIL


def test_item_4_a_worse_p99_at_one_load_within_the_slo_fails_even_with_more_capacity():
    found = verdict(4, replay__against_flat__p99_s=[row(10, 0.4), row(20, -7.0), row(40, -27.0)])
    assert found.verdict == FAIL
    assert "10 requests/s" in found.explanation


def test_item_4_does_not_look_at_loads_that_neither_policy_serves():
    found = verdict(
        4,
        replay__cacheroute=policy(1.0, 2.0, 40.0),
        replay__against_flat__p99_s=[row(10, -1.0), row(20, -7.0), row(40, 10.0)],
    )
    assert found.verdict == PASS


def test_item_4_says_when_no_load_is_within_the_slo():
    found = verdict(
        4,
        replay__cacheroute=policy(5.0, 6.0, 40.0),
        replay__flat=policy(6.0, 9.0, 30.0),
        replay__against_flat__capacity_steps=EQUAL,
    )
    assert found.verdict == MISSING
    assert "at any replayed load" in found.explanation


def test_item_4_two_seeds_are_no_interval():
    assert verdict(4, replay__seeds=[1, 2]).verdict == MISSING


def test_item_4_identical_seeds_are_no_interval():
    rows = [row(10, -1.0, 1e-16), row(20, -7.0, 1e-16), row(40, -27.0, 1e-16)]
    assert verdict(4, replay__against_flat__p99_s=rows).verdict == MISSING


def test_item_4_one_load_of_several_must_be_better_beyond_the_chance_of_looking_at_several():
    lucky = row(20, -0.3) | {"excludes_zero_all_loads": False}
    found = verdict(
        4,
        replay__against_flat__capacity_steps=EQUAL,
        replay__against_flat__p99_s=[row(10, 0.01), lucky, row(40, 0.02)],
    )
    assert found.verdict == FAIL  # only the hit rate is higher


def test_item_3_requests_that_no_destination_can_hold_fail_it():
    candidate = policy(1.0, 2.0, 3.0)
    candidate["loads"][1]["refused"] = 7
    found = verdict(3, replay__cacheroute=candidate)
    assert found.verdict == FAIL
    assert "7 requests" in found.explanation


@pytest.mark.parametrize(
    ("changes", "expected"), [({"envelope": None}, MISSING), ({"fallback": {"ready": False}}, FAIL)]
)
def test_item_5_wants_a_validated_range_and_flat_lb_ready(changes, expected):
    assert verdict(5, **changes).verdict == expected


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ({"arrivals": "gamma", "cv": 0.99}, MISSING),
        ({"arrivals": "gamma", "cv": 1.0}, PASS),
        ({"arrivals": "bootstrap", "run_length": 400, "runs": 19}, MISSING),
        ({"arrivals": "bootstrap", "run_length": 400, "runs": 20}, PASS),
        ({"arrivals": "bootstrap", "run_length": None, "runs": None}, PASS),
    ],
)
def test_item_3_wants_arrivals_that_are_no_calmer_than_traffic(made, expected):
    judged = verdict(3, **{f"replay__{name}": value for name, value in made.items()})
    assert judged.verdict == expected
    assert judged.numbers["arrivals"] == made["arrivals"]
    if expected == MISSING:
        assert str(made.get("cv") or made["runs"]) in judged.explanation


@pytest.mark.parametrize(("earlier", "words"), [(1, "1 earlier one had"), (4, "replay 5 of this plan: 4 earlier ones")])
def test_item_3_says_how_many_replays_went_before(earlier, words):
    assert words in verdict(3, replay__earlier_replays=earlier).explanation
    assert "earlier" not in verdict(3).explanation


def test_item_5_fails_unless_the_validated_range_reaches_the_measured_rate():
    assert verdict(5, envelope__load_high_rps=23.8).verdict == PASS
    judged = verdict(5, envelope__load_high_rps=20)
    assert judged.verdict == FAIL
    assert "up to 20 requests/s only" in judged.explanation
    assert "measured at 24" in judged.explanation


FAR_BELOW = {
    "workload__total_rps": 254.0,
    "replay__loads_rps": [1e-6, 2e-6, 254.0],
    "replay__against_flat__hit_rate": [row(1e-6, 0.5), row(2e-6, 0.5), row(254.0, 0.5)],
    "replay__cacheroute": at_loads((1e-6, 1.0), (2e-6, 1.0), (254.0, 60.0)),
    "envelope__load_low_rps": 1e-6,
    "envelope__load_high_rps": 2e-6,
}


def test_a_plan_that_misses_the_slo_at_the_measured_rate_passes_neither_by_p99_nor_in_range_at_tiny_loads():
    changes = FAR_BELOW | {
        "replay__flat": at_loads((1e-6, 2.0), (2e-6, 2.0), (254.0, 70.0)),
        "replay__against_flat__p99_s": [row(1e-6, -1.0), row(2e-6, -1.0), row(254.0, -10.0)],
        "replay__against_flat__capacity_steps": EQUAL,
    }
    judged = verdict(4, **changes)
    assert judged.verdict == MISSING
    assert "below 127 requests/s" in judged.explanation
    assert verdict(5, **changes).verdict == FAIL


def test_more_capacity_at_tiny_loads_only_does_not_count():
    changes = FAR_BELOW | {
        "replay__flat": at_loads((1e-6, 2.0), (2e-6, 9.0), (254.0, 70.0)),
        "replay__against_flat__p99_s": [row(1e-6, -1.0), row(2e-6, -8.0), row(254.0, -10.0)],
        "replay__against_flat__capacity_steps": {"mean": 1.0, "half": 0.0, "excludes_zero": True},
    }
    assert verdict(4, **changes).verdict == MISSING


def test_more_capacity_does_not_count_where_what_is_more_lies_below_half_of_the_measured_rate():
    found = verdict(
        4,
        workload__total_rps=70.0,
        replay__flat=policy(4.0, 4.0, 2.0),
        replay__against_flat__p99_s=[row(10, -3.0), row(20, -2.0), row(40, 0.01)],
    )
    assert found.verdict == MISSING


@pytest.mark.parametrize(("measured", "expected"), [(40.0, PASS), (40.2, MISSING)])
def test_a_better_p99_counts_from_half_of_the_measured_rate(measured, expected):
    found = verdict(
        4,
        workload__total_rps=measured,
        replay__against_flat__capacity_steps=EQUAL,
        replay__against_flat__p99_s=[row(10, -1.0), row(20, -7.0), row(40, 0.01)],
    )
    assert found.verdict == expected
    assert found.numbers["better_counts_from_rps"] == measured / 2


def test_a_worse_p99_counts_at_every_load_within_the_slo():
    rows = [row(10, 0.4), row(20, -7.0), row(40, -27.0)]
    assert verdict(4, workload__total_rps=40.0, replay__against_flat__p99_s=rows).verdict == FAIL


@pytest.mark.parametrize("what", ["calibration", "plan", "replay"])
def test_item_6_fails_when_the_serving_profile_changed_since(what):
    assert verdict(6, **{f"fingerprints__{what}": "0" * 64}).verdict == FAIL


def test_item_6_fails_when_a_destination_has_another_speed_than_was_planned_for():
    judged = verdict(6, capacity_up=[1.0, 1.0, 1.0, 1.0])
    assert (judged.verdict, judged.numbers["speeds_changed"]) == (FAIL, [2])


def test_item_6_fails_when_other_destinations_are_up_than_were_planned():
    assert verdict(6, destinations_up=[0, 1, 2]).verdict == FAIL


def test_item_6_is_missing_without_a_replay():
    assert verdict(6, fingerprints__replay="").verdict == MISSING


def test_no_item_passes_on_empty_evidence():
    nothing = passing() | {"replay": None, "envelope": None}
    verdicts = [item.verdict for item in checks.judge(nothing, LIVE)]
    assert verdicts[2:5] == [MISSING] * 3


def test_item_3_wants_the_measured_rate_among_the_replayed_loads():
    assert verdict(3, workload__total_rps=40.2).verdict == PASS
    judged = verdict(3, workload__total_rps=60.0)
    assert judged.verdict == MISSING
    assert "up to 40 requests/s" in judged.explanation


def test_item_6_says_when_a_replan_starts_from_what_is_not_live():
    replan = {"incumbent": 3, "incumbent_is_live": False}
    judged = verdict(6, replan=replan)
    assert judged.verdict == PASS
    assert "Plan 3, whose warm keys it keeps, is not live" in judged.explanation
    assert "not live" not in verdict(6, replan=replan | {"incumbent_is_live": True}).explanation


def test_loads_that_bisection_added_for_one_policy_only_are_compared_nowhere():
    candidate = policy(1.0, 2.0, 3.0)
    candidate["loads"].insert(2, {"load_rps": 30, "p99_s": {"mean": 99.0, "half": 0.1}, "refused": 0})
    assert verdict(4, replay__cacheroute=candidate).verdict == PASS


def test_a_load_with_one_pair_of_seeds_has_no_interval_and_decides_nothing():
    alone = {"load_rps": 20, "mean": 5.0, "half": None, "excludes_zero": False, "excludes_zero_all_loads": False}
    rows = [row(10, -1.0), alone, row(40, -27.0)]
    assert verdict(4, replay__against_flat__p99_s=rows).verdict == PASS


# --- Named checks, items that they make up, and waivers -----------------------------------------------------


def one(name, *, live=LIVE, **changes):
    """One check of passing evidence with paths changed."""
    return CHECKS[name].judge(changed(**changes), live)


def test_every_item_has_checks_and_every_check_is_of_one_of_six_items_and_passes_on_complete_evidence():
    assert {check.item for check in CHECKS.values()} == {1, 2, 3, 4, 5, 6}
    assert {name: check.judge(passing(), LIVE).verdict for name, check in CHECKS.items()} == dict.fromkeys(CHECKS, PASS)


@pytest.mark.parametrize("name", CHECKS)
def test_no_check_of_a_replay_passes_without_one(name):
    judged = one(name, replay=None, envelope=None)
    if CHECKS[name].needs == "replay" or name in ("envelope-set", "range-reaches-rate"):
        assert judged.verdict == MISSING
        assert judged.explanation


def test_an_item_is_as_bad_as_its_worst_check_and_names_the_first_of_those():
    item = verdict(2, plan__imbalance=1.6, plan__worst_loss=None, plan__cannot_fit=2)
    assert item.verdict == FAIL
    assert item.explanation == "2 keys need more than all destinations at q_cap."
    assert [c.check.name for c in item.checks if c.judgement.verdict != PASS] == [
        "keys-fit", "load-balanced", "loss-bounded",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("worst", "limit", "expected"), [(2.0, 2.0, PASS), (2.01, 2.0, FAIL), (1.3, 1.2, FAIL), (None, 2.0, MISSING)]
)
def test_the_worst_loss_of_one_destination_is_bounded_by_the_policy(worst, limit, expected):
    assert one("loss-bounded", plan__worst_loss=worst, policy__max_loss_imbalance=limit).verdict == expected


def test_a_plan_for_one_destination_has_nothing_left_after_a_loss():
    judged = one("loss-bounded", plan__worst_loss=None, plan__destinations=[0])
    assert (judged.verdict, "nothing is left" in judged.explanation) == (MISSING, True)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("loads-matched", {"policy__min_loads": 4}),
        ("seeds-paired", {"policy__min_seeds": 4}),
        ("comparable", {"policy__min_seeds": 4}),
        ("requests-enough", {"policy__min_requests": 16_001}),
        ("w-within-calibrated", {"plan__slots_per_destination": 49}),
    ],
)
def test_thresholds_are_those_of_the_policy(name, changes):
    assert one(name, **changes).verdict != PASS


def test_loads_count_only_where_all_that_is_compared_was_run_at_them():
    flat = policy(2.0, 9.0, 30.0)
    flat["loads"][2]["load_rps"] = 41
    judged = one("loads-matched", replay__flat=flat)
    assert (judged.verdict, judged.numbers["loads"]) == (MISSING, 2)


def test_a_ladder_that_nobody_breaks_on_has_to_reach_the_calibrated_knee():
    easy = {"replay__flat": policy(1.1, 2.1, 3.1), "replay__cacheroute": policy(1.0, 2.0, 3.0)}
    # 8 requests/s at q_cap, five times the speed of one destination.
    assert one("knee-reached", **easy).verdict == PASS
    judged = one("knee-reached", **easy, calibration__q_cap=9.0)
    assert judged.verdict == MISSING
    assert "calibrated knee is at 45" in judged.explanation
    # Where a compared policy misses the SLO a knee is seen.
    assert one("knee-reached", calibration__q_cap=9.0).verdict == PASS


INCUMBENT = {"plan": 3, "table_digest": "t" * 64, "apart": ""}


def beside(*p99, p99_differences=(0.5, 1.0, 2.0), steps=(0.0, False)):
    """The live plan's figures; differences are its own minus the candidate's."""
    differences = [row(load, d) for load, d in zip((10, 20, 40), p99_differences, strict=True)]
    return policy(*p99) | {
        "policy": "cacheroute@3",
        "against": {
            "p99_s": differences,
            "capacity_steps": {"mean": steps[0], "half": 0.0, "excludes_zero": steps[1]},
        },
    }


def test_a_missing_baseline_never_passes():
    """The plan that is live, or Flat-LB, was not replayed: not pass, whatever else there is."""
    for changes in (
        {"incumbent": INCUMBENT},
        {"incumbent": INCUMBENT | {"apart": "it is for other destinations"}},
        {"replay__policies": ["cacheroute", "sticky"]},
        {"replay__against_flat": None},
        {"replay": None, "envelope": None},
    ):
        items = checks.judge(changed(**changes), LIVE)
        assert not checks.passed(items), changes
        assert {items[2].verdict, items[3].verdict} - {PASS}, changes
    item = verdict(3, incumbent=INCUMBENT)
    assert (item.verdict, "replay again, it is added by itself" in item.explanation) == (MISSING, True)
    assert "Fall back to Flat-LB first, or ask for a waiver" in (
        verdict(3, incumbent=INCUMBENT | {"apart": "it is for other destinations"}).explanation
    )


def test_a_plan_no_worse_than_the_one_that_is_live_passes():
    changes = {"incumbent": INCUMBENT, "replay__incumbent": beside(1.5, 3.0, 5.0)}
    assert (verdict(3, **changes).verdict, verdict(4, **changes).verdict) == (PASS, PASS)
    assert "plan 3 beside" in verdict(3, **changes).explanation


@pytest.mark.parametrize(
    ("figures", "expected", "words"),
    [
        (beside(0.9, 3.0, 5.0, p99_differences=(-0.2, 1.0, 2.0)), FAIL, "worse than that of plan 3"),
        (beside(1.5, 3.0, 5.0, p99_differences=(-0.05, 0.02, 2.0)), PASS, ""),
        (beside(1.5, 3.0, 3.1, steps=(1.0, True)), FAIL, "Capacity is lower than that of plan 3"),
        (beside(1.5, 3.0, 5.0, steps=(-1.0, True)), PASS, ""),
    ],
)
def test_a_plan_that_serves_worse_than_the_one_that_is_live_fails(figures, expected, words):
    item = verdict(4, incumbent=INCUMBENT, replay__incumbent=figures)
    assert item.verdict == expected
    assert words in item.explanation


def silent(minutes):
    return Live(NOW, monitor_at=NOW, telemetry_at=NOW - dt.timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("live", "accept", "expected"),
    [
        (Live(NOW), False, (MISSING, MISSING)),  # nothing was ever heard, nobody looked
        (Live(NOW), True, (PASS, PASS)),  # a sample on its first start
        (Live(NOW, monitor_at=NOW - dt.timedelta(minutes=3)), True, (PASS, PASS)),
        (silent(2), False, (PASS, PASS)),
        (silent(4), False, (PASS, MISSING)),
        (silent(4), True, (PASS, MISSING)),  # what reported once must go on
        (Live(NOW, monitor_at=NOW - dt.timedelta(minutes=4), telemetry_at=NOW), False, (FAIL, PASS)),
        (Live(NOW, telemetry_at=NOW), True, (MISSING, PASS)),
    ],
)
def test_item_5_wants_the_monitor_alive_and_routers_heard(live, accept, expected):
    found = [
        one(name, live=live, policy__accept_simulated=accept).verdict for name in ("monitor-alive", "telemetry-fresh")
    ]
    assert tuple(found) == expected


@pytest.mark.parametrize("lacking", ["max_imbalance", "max_error_rate", "active_keys", "p99_limit_s", "load_high_rps"])
def test_item_5_wants_every_limit_of_the_validated_range(lacking):
    judged = one("envelope-set", **{f"envelope__{lacking}": None})
    assert (judged.verdict, lacking in judged.explanation) == (MISSING, True)


def test_item_6_fails_when_the_table_cannot_be_read():
    assert verdict(6, live=Live(NOW, table_readable=False)).verdict == FAIL


def test_item_6_fails_when_the_active_set_has_another_distribution():
    apart = {"id": 9, "name": "monday", "apart": {"gini": [0.75, 0.6]}}
    for what in ("calibration", "newer"):
        item = verdict(6, **{f"distribution__{what}": apart})
        assert (item.verdict, "monday" in item.explanation) == (FAIL, True)
    assert verdict(6, distribution__replay="s" * 64).verdict == FAIL


SHAPE = {"gini": 0.75, "top_4pct_share": 0.47, "largest_share": 0.003, "active_keys": 1_000}


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ({}, set()),
        ({"gini": 0.79}, set()),
        ({"gini": 0.81}, {"gini"}),
        ({"largest_share": 0.2, "active_keys": 700}, {"largest_share", "active_keys"}),
        ({"active_keys": 1_190}, set()),
    ],
)
def test_two_distributions_are_apart_beyond_five_points_or_a_fifth_of_the_keys(other, names):
    assert set(checks.apart(SHAPE, SHAPE | other)) == names


WAIVER = {
    "id": 1, "check": "loss-bounded", "reason": "new racks on Friday", "requested_by": "ada", "granted_by": "grace",
    "expires_at": "2026-03-20T00:00:00+00:00",
}  # fmt: skip


def test_a_waived_check_keeps_its_verdict_and_lets_the_plan_pass():
    items = checks.judge(changed(plan__worst_loss=3.0, waivers=[WAIVER]), LIVE)
    assert checks.passed(items)
    assert (items[1].verdict, items[1].waived) == (FAIL, True)
    assert "Waived until 2026-03-20, asked for by ada, granted by grace: new racks on Friday" in items[1].explanation
    stored = next(c for c in (judged.as_dict() for judged in items[1].checks) if c["name"] == "loss-bounded")
    assert (stored["verdict"], stored["waiver"]) == (FAIL, WAIVER)


def test_a_waiver_of_one_check_lets_no_other_pass():
    items = checks.judge(changed(plan__worst_loss=3.0, plan__imbalance=1.6, waivers=[WAIVER]), LIVE)
    assert not checks.passed(items)
    assert (items[1].waived, "1.600" in items[1].explanation) == (False, True)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("better-than-flat", {"replay__against_flat__capacity_steps": EQUAL,
                              "replay__against_flat__p99_s": [row(10, -0.05), row(20, 0.02), row(40, -0.01)]}),
        ("flat-replayed", {"replay__policies": ["cacheroute"]}),
        ("flat-ready", {"fallback__ready": False}),
        ("profile-unchanged", {"fingerprints__replay": "0" * 64}),
        ("destinations-unchanged", {"destinations_up": [0, 1, 2]}),
        ("speeds-unchanged", {"capacity_up": [1.0, 1.0, 1.0, 1.0]}),
    ],
)  # fmt: skip
def test_no_waiver_helps_a_check_that_cannot_be_waived(name, changes):
    assert one(name, **changes).verdict != PASS
    items = checks.judge(changed(**changes, waivers=[WAIVER | {"check": name}]), LIVE)
    assert not checks.passed(items)


def test_the_guide_lists_every_check_and_which_can_be_waived():
    guide = (Path(__file__).parents[2] / "docs" / "governance.md").read_text()
    for check in CHECKS.values():
        line = f"| {check.item} | `{check.name}` | {check.title} | {'yes' if check.waivable else 'no'} |"
        assert line in guide
