"""Database models, one file for each noun."""

from planner.models.approval import Approval, PlanComment
from planner.models.artifact import Artifact
from planner.models.audit import AuditCheckpoint, AuditEvent, AuditLink
from planner.models.break_glass import BreakGlass
from planner.models.calibration import Calibration
from planner.models.fleet import Destination, Fleet, FleetRole, PolicyVersion, Publication
from planner.models.gate import GateEvaluation, GateItem
from planner.models.job import Job
from planner.models.plan import Plan, PlanState
from planner.models.replay import BASELINE, CANDIDATE, Replay, ReplayCell
from planner.models.rollout import Freeze, Rollout, RolloutAnalysis, RolloutState, RolloutStep
from planner.models.serving import ServingProfile
from planner.models.study import Study
from planner.models.telemetry import DriftCheck, TelemetrySource, TelemetryWindow
from planner.models.token import ApiToken, IdempotencyRecord
from planner.models.waiver import Waiver
from planner.models.webhook import Webhook, WebhookDelivery
from planner.models.workload import Workload

__all__ = [
    "BASELINE",
    "CANDIDATE",
    "ApiToken",
    "Approval",
    "Artifact",
    "AuditCheckpoint",
    "AuditEvent",
    "AuditLink",
    "BreakGlass",
    "Calibration",
    "Destination",
    "DriftCheck",
    "Fleet",
    "FleetRole",
    "Freeze",
    "GateEvaluation",
    "GateItem",
    "IdempotencyRecord",
    "Job",
    "Plan",
    "PlanComment",
    "PlanState",
    "PolicyVersion",
    "Publication",
    "Replay",
    "ReplayCell",
    "Rollout",
    "RolloutAnalysis",
    "RolloutState",
    "RolloutStep",
    "ServingProfile",
    "Study",
    "TelemetrySource",
    "TelemetryWindow",
    "Waiver",
    "Webhook",
    "WebhookDelivery",
    "What",
    "Workload",
]
