"""Bringing an approved plan to traffic by steps, and taking it away at once.

By what they are for: starting and schedules, the steps of a canary, rolling back, falling back, freezes.
"""

from planner.services.fallback import fall_back
from planner.services.freezes import freeze, lift_freeze, unfreeze
from planner.services.rollbacks import roll_back
from planner.services.rollout_steps import (
    abort_rollout,
    advance_rollout,
    pause_rollout,
    promote_rollout,
    resume_rollout,
)
from planner.services.schedules import fire_schedules, reschedule_rollout, start_rollout

__all__ = [
    "abort_rollout",
    "advance_rollout",
    "fall_back",
    "fire_schedules",
    "freeze",
    "lift_freeze",
    "pause_rollout",
    "promote_rollout",
    "reschedule_rollout",
    "resume_rollout",
    "roll_back",
    "start_rollout",
    "unfreeze",
]
