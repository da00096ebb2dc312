"""The engine of the checklist: small named checks over evidence, grouped into the six items of the paper (5.7).

A check is a pure function of the evidence of a plan and of what is true at this moment, so that its verdict can be
given again years later. Missing data never passes. An item is as good as the worst of its checks.
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
    """What is true at the moment of judging and changes by itself, so that no digest may hold it.

    Attributes
    ----------
    now : aware datetime
    table_readable : bool
        Whether the plan's table was read from storage and is what its digest says.
    monitor_at, telemetry_at : aware datetime or None
        When the monitor ran last, and the end of the newest window that routers of the fleet reported.
    """

    now: dt.datetime
    table_readable: bool = True
    monitor_at: dt.datetime | None = None
    telemetry_at: dt.datetime | None = None


@dataclass(frozen=True)
class Judgement:
    """Verdict of one check, with the numbers it rests on."""

    verdict: str
    explanation: str
    numbers: Mapping[str, object] = field(default_factory=dict)


Function = Callable[[Evidence, Live], Judgement]


@dataclass(frozen=True)
class Check:
    """A registered check. `waivable` says whether people may let a plan go on without it."""

    item: int
    name: str
    title: str
    function: Function
    waivable: bool
    needs: str

    def judge(self, evidence: Evidence, live: Live) -> Judgement:
        """The verdict; missing where the part of the evidence that it is about is not there."""
        if self.needs == "replay" and evidence.replay is None:
            return Judgement(MISSING, no_replay(evidence))
        return self.function(evidence, live)


CHECKS: dict[str, Check] = {}
Summary = Callable[[Evidence], str]
_SUMMARIES: dict[int, Summary] = {}


def check(
    *, item: int, name: str, title: str, waivable: bool = True, needs: str = ""
) -> Callable[[Function], Function]:
    """Register a check of an item. `needs="replay"`: without a finished replay it is missing."""

    def register(function: Function) -> Function:
        if name in CHECKS:
            raise ValueError(f"two checks are named {name}")
        CHECKS[name] = Check(item, name, title, function, waivable, needs)
        return function

    return register


def summary(*, item: int) -> Callable[[Summary], Summary]:
    """Register what an item says when all its checks pass."""

    def register(function: Summary) -> Summary:
        _SUMMARIES[item] = function
        return function

    return register


def no_replay(evidence: Evidence) -> str:
    """Why there is no replay to judge by."""
    if what_ifs := evidence.what_ifs:
        latest = what_ifs[0]
        return (
            f"Replayed only as a what-if: replay {latest.id} had {' and '.join(latest.reasons)}. That shows what "
            "would happen then; the gate needs a replay without."
        )
    return "No finished replay of this plan."


@dataclass(frozen=True)
class JudgedCheck:
    """A check with its verdict, and the waiver of it that is in force."""

    check: Check
    judgement: Judgement
    waiver: WaiverEvidence | None

    @property
    def settled(self) -> bool:
        """Whether it does not stand in the way: it passes, or people let it."""
        return self.judgement.verdict == PASS or self.waiver is not None

    def as_dict(self) -> JsonObject:
        """JSON-able, as an evaluation keeps it."""
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
    """An item of the checklist: as good as the worst of its checks."""

    number: int
    checks: tuple[JudgedCheck, ...]
    summary: str

    @property
    def title(self) -> str:
        """What the item is called."""
        return TITLES[self.number]

    @property
    def verdict(self) -> str:
        """The worst of its checks: fail before missing before pass. A waiver changes nothing of it."""
        return max((c.judgement.verdict for c in self.checks), key=_ORDER.index)

    @property
    def settled(self) -> bool:
        """Whether every check passes or is waived."""
        return all(c.settled for c in self.checks)

    @property
    def waived(self) -> bool:
        """It does not pass, and people let it."""
        return self.verdict != PASS and self.settled

    @property
    def explanation(self) -> str:
        """The first of the worst checks that no waiver lets pass; with waivers only, the first of those."""
        if self.verdict == PASS:
            return self.summary
        open_checks = [c for c in self.checks if not c.settled]
        if open_checks:
            return _worst(open_checks).judgement.explanation
        worst = _worst([c for c in self.checks if c.judgement.verdict != PASS])
        w = worst.waiver
        assert w is not None  # it is settled and does not pass
        return (
            f"{worst.judgement.explanation} Waived until {w.expires_at[:10]}, asked for by {w.requested_by}, "
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
    """The six items in order, with the waivers that the evidence holds."""
    return [judge_item(number, evidence, live) for number in TITLES]


def judge_item(number: int, evidence: Evidence, live: Live) -> JudgedItem:
    """One item."""
    waivers = {w.check: w for w in evidence.waivers}
    checks = tuple(
        JudgedCheck(c, c.judge(evidence, live), waivers.get(c.name) if c.waivable else None)
        for c in CHECKS.values()
        if c.item == number
    )
    passes = all(c.judgement.verdict == PASS for c in checks)
    return JudgedItem(number, checks, _SUMMARIES[number](evidence) if passes else "")


def passed(items: Sequence[JudgedItem]) -> bool:
    """Whether a plan may go on: every check passes or is waived."""
    return all(item.settled for item in items)
