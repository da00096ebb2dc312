"""The engine constants that a stored serving profile means, for whoever simulates it."""

from __future__ import annotations

from planner.models import ServingProfile
from planner.simulation import EngineProfile


def engine_of(profile: ServingProfile) -> EngineProfile:
    """The constants as they were stored: a later release with other ones changes no fingerprinted result."""
    return EngineProfile(**profile.engine_constants)
