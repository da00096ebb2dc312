"""Named checks, the items that they make up, and waivers: over plain evidence, as in test_checklist."""

import datetime as dt
from pathlib import Path

import pytest

from planner import checklist
from planner.checklist import CHECKS, FAIL, MISSING, PASS, Live
from tests.checklist.evidence import EQUAL, LIVE, NOW, changed, passing, policy, row, verdict


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
    assert (judged.verdict, "without it nothing serves" in judged.explanation) == (MISSING, True)


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
        items = checklist.judge(changed(**changes), LIVE)
        assert not checklist.passed(items), changes
        assert {items[2].verdict, items[3].verdict} - {PASS}, changes
    item = verdict(3, incumbent=INCUMBENT)
    assert (item.verdict, "Replay again: it is added automatically" in item.explanation) == (MISSING, True)
    assert "Fall back to Flat-LB first, or request a waiver" in (
        verdict(3, incumbent=INCUMBENT | {"apart": "it is for other destinations"}).explanation
    )


def test_a_plan_no_worse_than_the_one_that_is_live_passes():
    changes = {"incumbent": INCUMBENT, "replay__incumbent": beside(1.5, 3.0, 5.0)}
    assert (verdict(3, **changes).verdict, verdict(4, **changes).verdict) == (PASS, PASS)
    assert "plan 3 beside" in verdict(3, **changes).explanation


@pytest.mark.parametrize(
    ("figures", "expected", "words"),
    [
        (beside(0.9, 3.0, 5.0, p99_differences=(-0.2, 1.0, 2.0)), FAIL, "worse than that of the live plan 3"),
        (beside(1.5, 3.0, 5.0, p99_differences=(-0.05, 0.02, 2.0)), PASS, ""),
        (beside(1.5, 3.0, 3.1, steps=(1.0, True)), FAIL, "Capacity is lower than that of the live plan 3"),
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
    assert set(checklist.apart(SHAPE, SHAPE | other)) == names


WAIVER = {
    "id": 1, "check": "loss-bounded", "reason": "new racks on Friday", "requested_by": "ada", "granted_by": "grace",
    "expires_at": "2026-03-20T00:00:00+00:00",
}  # fmt: skip


def test_a_waived_check_keeps_its_verdict_and_lets_the_plan_pass():
    items = checklist.judge(changed(plan__worst_loss=3.0, waivers=[WAIVER]), LIVE)
    assert checklist.passed(items)
    assert (items[1].verdict, items[1].waived) == (FAIL, True)
    assert "Waived until 2026-03-20, requested by ada, granted by grace: new racks on Friday" in items[1].explanation
    stored = next(c for c in (judged.as_dict() for judged in items[1].checks) if c["name"] == "loss-bounded")
    assert (stored["verdict"], stored["waiver"]) == (FAIL, WAIVER)


def test_a_waiver_of_one_check_lets_no_other_pass():
    items = checklist.judge(changed(plan__worst_loss=3.0, plan__imbalance=1.6, waivers=[WAIVER]), LIVE)
    assert not checklist.passed(items)
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
    items = checklist.judge(changed(**changes, waivers=[WAIVER | {"check": name}]), LIVE)
    assert not checklist.passed(items)


def test_the_guide_lists_every_check_and_which_can_be_waived():
    guide = (Path(__file__).parents[2] / "docs" / "governance.md").read_text()
    for check in CHECKS.values():
        line = f"| {check.item} | `{check.name}` | {check.title} | {'yes' if check.waivable else 'no'} |"
        assert line in guide
