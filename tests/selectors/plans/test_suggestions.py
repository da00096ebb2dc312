"""Names that are suggested for an unknown name."""

import random
import time

import pytest

from planner.selectors.plans.suggestions import closest


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("bgi", "big"),
        ("mdi", "mid"),
        ("d9", "d0"),
        ("tenant/42/system-promt", "tenant/42/system-prompt"),
        ("Köl", "Köln"),
    ],
)
def test_a_slip_of_the_pen_finds_the_name(name, first):
    known = ["mid", "small", "big", "d0", "tenant/42/system-prompt", "tenant/7/tools", "Köln"]
    assert closest(name, known, 3)[0] == first


def test_the_best_come_first_and_no_more_than_asked_for():
    known = [f"host-{n:05d}" for n in range(10_000)]
    found = closest("host-01234x", known, 5)
    assert len(found) == len(set(found)) == 5
    assert found[0] == "host-01234"


@pytest.mark.parametrize("name", ["", "zzzzzz", "\0"])
def test_what_is_like_nothing_finds_nothing(name):
    assert closest(name, ["alpha", "beta"], 5) == []


@pytest.mark.parametrize("letters", ["a", "ab", "abc", "0123456789abcdef"])
def test_two_thousand_long_names_take_little_time_whatever_they_look_like(letters):
    pick = random.Random(7)
    known = ["".join(pick.choices(letters, k=500)) + str(n) for n in range(2_000)]
    name = "".join(pick.choices(letters, k=512))
    started = time.process_time()
    closest(name, known, 5)
    assert time.process_time() - started < 0.25  # measured: 0.03 s; letter by letter it took 2.4 s
