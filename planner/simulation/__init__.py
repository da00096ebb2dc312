"""Simulated replicas with a prefix cache, and replays of a trace under a policy. Pure: numpy and numba only."""

from planner.simulation.profile import PROFILES, EngineProfile
from planner.simulation.replay import replay
from planner.simulation.result import ReplayResult
from planner.simulation.trace import Blocks, Trace

__all__ = ["PROFILES", "Blocks", "EngineProfile", "ReplayResult", "Trace", "replay"]
