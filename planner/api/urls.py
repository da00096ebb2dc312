"""`/api/v1/`."""

from __future__ import annotations

from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.routers import DefaultRouter

from planner.api.document import Document
from planner.api.problems import NothingHere
from planner.api.views import (
    calibrations,
    explanations,
    fleets,
    governance,
    inputs,
    operations,
    plans,
    reviews,
    rollouts,
    telemetry,
    webhooks,
)

router = DefaultRouter()
router.include_format_suffixes = False
router.register("fleets", fleets.FleetViewSet)
router.register("destinations", fleets.DestinationViewSet)
router.register("workloads", inputs.WorkloadViewSet)
router.register("calibrations", calibrations.CalibrationViewSet)
router.register("plans", plans.PlanViewSet)
router.register("replays", plans.ReplayViewSet)
router.register("gates", reviews.GateViewSet)
router.register("approvals", reviews.ApprovalViewSet)
router.register("waivers", reviews.WaiverViewSet)
router.register("rollouts", rollouts.RolloutViewSet)
router.register("freezes", rollouts.FreezeViewSet)
router.register("telemetry", telemetry.TelemetryWindowViewSet)
router.register("drift-checks", telemetry.DriftCheckViewSet)
router.register("jobs", operations.JobViewSet)
router.register("audit-events", operations.AuditEventViewSet)
router.register("tokens", operations.TokenViewSet)
router.register("audit-checkpoints", governance.CheckpointViewSet)
router.register("policy-versions", governance.PolicyVersionViewSet)
router.register("emergencies", governance.EmergencyViewSet)
router.register("webhooks", webhooks.WebhookViewSet)
router.register("webhook-deliveries", webhooks.DeliveryViewSet)
router.register("waiting", governance.WaitingViewSet, basename="waiting")

plan = explanations.ExplanationViewSet

urlpatterns = [
    path("schema/", Document.as_view(), name="schema"),
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="api-docs"),
    path("plans/<int:pk>/explain/", plan.as_view({"get": "explain"})),
    path("plans/<int:pk>/sensitivity/", plan.as_view({"get": "sensitivity", "post": "order_sensitivity"})),
    path("plans/<int:pk>/blast-radius/", rollouts.BlastRadiusViewSet.as_view({"get": "blast_radius"})),
    path("", include(router.urls)),
    # With the slash only, so that Django's redirect to the address with a slash still comes first.
    re_path(r"^.*/$", NothingHere.as_view()),
]
