"""The deployment checklist (paper, section 5.7) as named checks over evidence. See docs/governance.md."""

from __future__ import annotations

# Importing registers; within an item, checks stand in the order of its module.
from planner.checklist import fallback, improvement, inputs, replayed, unchanged, warm_slots
from planner.checklist.engine import (
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
from planner.checklist.unchanged import apart

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
    "fallback",
    "improvement",
    "inputs",
    "judge",
    "judge_item",
    "passed",
    "replayed",
    "unchanged",
    "warm_slots",
]
