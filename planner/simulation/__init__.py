"""Simulated replicas with a prefix cache, and replays of a trace under a policy. Pure: numpy, numba and scipy."""

from planner.simulation.arrivals import ARRIVALS, retime
from planner.simulation.calibration import CalibrationPoint, CalibrationResult, calibrate
from planner.simulation.faults import Fault, PlanSwitch
from planner.simulation.fit import IterationPoint, SweepPoint, fit
from planner.simulation.ladder import Capacity, capacity
from planner.simulation.profile import PROFILES, EngineProfile
from planner.simulation.replay import replay
from planner.simulation.result import ReplayResult
from planner.simulation.trace import Blocks, Trace

__all__ = [
    "ARRIVALS",
    "PROFILES",
    "Blocks",
    "CalibrationPoint",
    "CalibrationResult",
    "Capacity",
    "EngineProfile",
    "Fault",
    "IterationPoint",
    "PlanSwitch",
    "ReplayResult",
    "SweepPoint",
    "Trace",
    "calibrate",
    "capacity",
    "fit",
    "replay",
    "retime",
]
