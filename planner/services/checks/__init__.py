"""The deployment checklist (paper, section 5.7) as named checks over evidence. See docs/governance.md."""

from __future__ import annotations

# Importing registers; within an item, checks stand in the order of its module.
from planner.services.checks import better, fallback, inputs, replayed, same, slots
from planner.services.checks.engine import (
    CHECKS,
    FAIL,
    MISSING,
    PASS,
    TITLES,
    Check,
    JudgedCheck,
    JudgedItem,
    Judgement,
    Live,
    judge,
    judge_item,
    passed,
)
from planner.services.checks.same import apart

__all__ = [
    "CHECKS",
    "FAIL",
    "MISSING",
    "PASS",
    "TITLES",
    "Check",
    "JudgedCheck",
    "JudgedItem",
    "Judgement",
    "Live",
    "apart",
    "better",
    "fallback",
    "inputs",
    "judge",
    "judge_item",
    "passed",
    "replayed",
    "same",
    "slots",
]
