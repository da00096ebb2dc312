"""Addresses under `/api/v1/`."""

from __future__ import annotations

from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.routers import DefaultRouter

from planner.api.access.views import BreakGlassViewSet, TokenViewSet
from planner.api.audit.views import AuditEventViewSet, CheckpointViewSet
from planner.api.calibrations import views as calibrations
from planner.api.core.document import Document
from planner.api.core.errors import NothingHere
from planner.api.fleets import views as fleets
from planner.api.fleets.policy_views import PolicyVersionViewSet
from planner.api.gate.views import GateViewSet
from planner.api.jobs.views import JobViewSet
from planner.api.monitoring.views import DriftCheckViewSet
from planner.api.plans import explanation_views
from planner.api.plans import views as plans
from planner.api.replays.views import ReplayViewSet
from planner.api.reviews import views as reviews
from planner.api.reviews.inbox import WaitingViewSet
from planner.api.rollouts import views as rollouts
from planner.api.telemetry import views as telemetry
from planner.api.webhooks import views as webhooks
from planner.api.workloads import views as workloads

router = DefaultRouter()
router.include_format_suffixes = False
router.register("fleets", fleets.FleetViewSet)
router.register("destinations", fleets.DestinationViewSet)
router.register("workloads", workloads.WorkloadViewSet)
router.register("calibrations", calibrations.CalibrationViewSet)
router.register("plans", plans.PlanViewSet)
router.register("replays", ReplayViewSet)
router.register("gates", GateViewSet)
router.register("approvals", reviews.ApprovalViewSet)
router.register("waivers", reviews.WaiverViewSet)
router.register("rollouts", rollouts.RolloutViewSet)
router.register("freezes", rollouts.FreezeViewSet)
router.register("telemetry", telemetry.TelemetryWindowViewSet)
router.register("drift-checks", DriftCheckViewSet)
router.register("jobs", JobViewSet)
router.register("audit-events", AuditEventViewSet)
router.register("tokens", TokenViewSet)
router.register("audit-checkpoints", CheckpointViewSet)
router.register("policy-versions", PolicyVersionViewSet)
router.register("break-glass", BreakGlassViewSet)
router.register("webhooks", webhooks.WebhookViewSet)
router.register("webhook-deliveries", webhooks.DeliveryViewSet)
router.register("waiting", WaitingViewSet, basename="waiting")

plan = explanation_views.ExplanationViewSet

urlpatterns = [
    path("schema/", Document.as_view(), name="schema"),
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="api-docs"),
    path("plans/<int:pk>/explain/", plan.as_view({"get": "explain"})),
    path("plans/<int:pk>/sensitivity/", plan.as_view({"get": "sensitivity", "post": "order_sensitivity"})),
    path("plans/<int:pk>/blast-radius/", rollouts.BlastRadiusViewSet.as_view({"get": "blast_radius"})),
    path("", include(router.urls)),
    # Only with a slash, so that Django first redirects to the address with a slash.
    re_path(r"^.*/$", NothingHere.as_view()),
]
