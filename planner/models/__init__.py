"""What is stored; one file a noun."""

from planner.models.approval import Approval
from planner.models.artifact import Artifact
from planner.models.audit import AuditEvent
from planner.models.calibration import Calibration
from planner.models.fleet import Destination, Fleet
from planner.models.gate import GateEvaluation, GateItem
from planner.models.job import Job
from planner.models.plan import Plan, PlanState
from planner.models.replay import BASELINE, CANDIDATE, Replay, ReplayCell
from planner.models.rollout import Rollout, RolloutState, RolloutStep
from planner.models.serving import ServingProfile
from planner.models.study import Study
from planner.models.telemetry import DriftCheck, TelemetryWindow
from planner.models.token import ApiToken, IdempotencyRecord
from planner.models.workload import Workload

__all__ = [
    "BASELINE",
    "CANDIDATE",
    "ApiToken",
    "Approval",
    "Artifact",
    "AuditEvent",
    "Calibration",
    "Destination",
    "DriftCheck",
    "Fleet",
    "GateEvaluation",
    "GateItem",
    "IdempotencyRecord",
    "Job",
    "Plan",
    "PlanState",
    "Replay",
    "ReplayCell",
    "Rollout",
    "RolloutState",
    "RolloutStep",
    "ServingProfile",
    "Study",
    "TelemetryWindow",
    "Workload",
]
