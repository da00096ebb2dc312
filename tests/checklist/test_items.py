"""The six judgements over plain evidence. Every test starts from evidence that passes and takes one thing away."""

import pytest

from planner import checklist
from planner.checklist import FAIL, MISSING, PASS
from tests.checklist.evidence import EQUAL, LIVE, SYNTHETIC, at_loads, changed, passing, policy, row, verdict


def test_complete_evidence_passes_all_six_items():
    items = checklist.judge(passing(), LIVE)
    assert [item.verdict for item in items] == [PASS] * 6
    assert checklist.passed(items)
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
    nothing = changed(replay=None, envelope=None)
    verdicts = [item.verdict for item in checklist.judge(nothing, LIVE)]
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
