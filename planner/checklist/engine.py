"""The engine of the checklist: named checks over evidence, grouped into the six items of the paper (section 5.7).

A check is a pure function of the evidence of a plan and of the facts of the moment, so its verdict can be computed
again years later. Missing data never passes. The verdict of an item is the worst verdict of its checks.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from planner.checklist.evidence import Evidence, WaiverEvidence
from planner.records import JsonObject, to_json

PASS, FAIL, MISSING = "pass", "fail", "missing"
# The worst last.
_ORDER = (PASS, MISSING, FAIL)

TITLES = {
    1: "Rates and q_cap measured",
    2: "Warm slots conservative",
    3: "Shadow replay against Flat-LB",
    4: "Better p99 or capacity",
    5: "Fallback armed",
    6: "Serving profile unchanged",
}


@dataclass(frozen=True)
class Live:
    """Facts at the moment of judging that change without an act of a person, so no digest may cover them.

    Attributes
    ----------
    now : aware datetime
    table_readable : bool
        Whether the plan's table was read from storage and has its digest.
    monitor_at, telemetry_at : aware datetime or None
        When the monitor last ran, and the end of the newest window that routers of the fleet reported.
    """

    now: dt.datetime
    table_readable: bool = True
    monitor_at: dt.datetime | None = None
    telemetry_at: dt.datetime | None = None


@dataclass(frozen=True)
class Judgement:
    """Verdict of one check, and the numbers that it rests on."""

    verdict: str
    explanation: str
    numbers: Mapping[str, object] = field(default_factory=dict)


Function = Callable[[Evidence, Live], Judgement]


@dataclass(frozen=True)
class Check:
    """A registered check. `waivable`: a waiver may be granted for it."""

    item: int
    name: str
    title: str
    function: Function
    waivable: bool
    needs: str

    def judge(self, evidence: Evidence, live: Live) -> Judgement:
        """Return the verdict; missing where the evidence has no replay and the check needs one."""
        if self.needs == "replay" and evidence.replay is None:
            return Judgement(MISSING, no_replay(evidence))
        return self.function(evidence, live)


CHECKS: dict[str, Check] = {}
Summary = Callable[[Evidence], str]
_SUMMARIES: dict[int, Summary] = {}


def check(
    *, item: int, name: str, title: str, waivable: bool = True, needs: str = ""
) -> Callable[[Function], Function]:
    """Register a check.

    Parameters
    ----------
    item : int
        Number of its item, 1 to 6.
    name, title : str
        Unique name, and the title on pages.
    waivable : bool
        Whether a waiver may be granted for it.
    needs : str
        ``"replay"``: the check is missing without a finished replay.

    Returns
    -------
    callable
        Decorator that registers a function and returns it.

    Raises
    ------
    ValueError
        When another check has the name.
    """

    def register(function: Function) -> Function:
        if name in CHECKS:
            raise ValueError(f"two checks are named {name}")
        CHECKS[name] = Check(item, name, title, function, waivable, needs)
        return function

    return register


def summary(*, item: int) -> Callable[[Summary], Summary]:
    """Register the sentence of an item whose checks all pass."""

    def register(function: Summary) -> Summary:
        _SUMMARIES[item] = function
        return function

    return register


def no_replay(evidence: Evidence) -> str:
    """Return why there is no replay to judge by."""
    if what_ifs := evidence.what_ifs:
        latest = what_ifs[0]
        return (
            f"Replayed only as a what-if: replay {latest.id} has {' and '.join(latest.reasons)}. The gate needs a "
            "replay without these."
        )
    return "No finished replay of this plan."


@dataclass(frozen=True)
class JudgedCheck:
    """A check with its verdict and the waiver of it that is in force."""

    check: Check
    judgement: Judgement
    waiver: WaiverEvidence | None

    @property
    def settled(self) -> bool:
        """Whether it passes or is waived."""
        return self.judgement.verdict == PASS or self.waiver is not None

    def as_dict(self) -> JsonObject:
        """Return the JSON form that an evaluation stores."""
        return {
            "name": self.check.name,
            "title": self.check.title,
            "verdict": self.judgement.verdict,
            "explanation": self.judgement.explanation,
            "numbers": to_json(self.judgement.numbers),
            "waivable": self.check.waivable,
            "waiver": to_json(self.waiver) if self.judgement.verdict != PASS else None,
        }


def _worst(checks: Sequence[JudgedCheck]) -> JudgedCheck:
    return max(checks, key=lambda c: _ORDER.index(c.judgement.verdict))  # the first of the worst


@dataclass(frozen=True)
class JudgedItem:
    """An item of the checklist. Its verdict is the worst verdict of its checks."""

    number: int
    checks: tuple[JudgedCheck, ...]
    summary: str

    @property
    def title(self) -> str:
        """Title of the item."""
        return TITLES[self.number]

    @property
    def verdict(self) -> str:
        """The worst verdict of its checks: fail, then missing, then pass. A waiver does not change it."""
        return max((c.judgement.verdict for c in self.checks), key=_ORDER.index)

    @property
    def settled(self) -> bool:
        """Whether every check passes or is waived."""
        return all(c.settled for c in self.checks)

    @property
    def waived(self) -> bool:
        """Whether it does not pass and every open check is waived."""
        return self.verdict != PASS and self.settled

    @property
    def explanation(self) -> str:
        """The explanation of the first of the worst checks without a waiver; of the first waived one if all are."""
        if self.verdict == PASS:
            return self.summary
        open_checks = [c for c in self.checks if not c.settled]
        if open_checks:
            return _worst(open_checks).judgement.explanation
        worst = _worst([c for c in self.checks if c.judgement.verdict != PASS])
        w = worst.waiver
        assert w is not None  # it is settled and does not pass
        return (
            f"{worst.judgement.explanation} Waived until {w.expires_at[:10]}, requested by {w.requested_by}, "
            f"granted by {w.granted_by}: {w.reason}"
        )

    @property
    def numbers(self) -> JsonObject:
        """Numbers of all its checks."""
        found: dict[str, object] = {}
        for c in self.checks:
            found |= c.judgement.numbers
        plain: JsonObject = to_json(found)
        return plain


def judge(evidence: Evidence, live: Live) -> list[JudgedItem]:
    """Judge the six items in order, with the waivers in the evidence."""
    return [judge_item(number, evidence, live) for number in TITLES]


def judge_item(number: int, evidence: Evidence, live: Live) -> JudgedItem:
    """Judge one item.

    Parameters
    ----------
    number : int
        Number of the item, 1 to 6.
    evidence : Evidence
        Evidence of the plan.
    live : Live
        Facts of the moment.

    Returns
    -------
    JudgedItem
        The item with its judged checks.
    """
    waivers = {w.check: w for w in evidence.waivers}
    checks = tuple(
        JudgedCheck(c, c.judge(evidence, live), waivers.get(c.name) if c.waivable else None)
        for c in CHECKS.values()
        if c.item == number
    )
    passes = all(c.judgement.verdict == PASS for c in checks)
    return JudgedItem(number, checks, _SUMMARIES[number](evidence) if passes else "")


def passed(items: Sequence[JudgedItem]) -> bool:
    """Return whether the gate passes: every check passes or is waived."""
    return all(item.settled for item in items)
