"""`/api/v1/`."""

from __future__ import annotations

from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.routers import DefaultRouter

from planner.api.problems import NothingHere
from planner.api.views import calibrations, explanations, fleets, inputs, operations, plans, rollouts

router = DefaultRouter()
router.include_format_suffixes = False
router.register("fleets", fleets.FleetViewSet)
router.register("destinations", fleets.DestinationViewSet)
router.register("workloads", inputs.WorkloadViewSet)
router.register("calibrations", calibrations.CalibrationViewSet)
router.register("plans", plans.PlanViewSet)
router.register("replays", plans.ReplayViewSet)
router.register("gates", plans.GateViewSet)
router.register("approvals", plans.ApprovalViewSet)
router.register("rollouts", rollouts.RolloutViewSet)
router.register("freezes", rollouts.FreezeViewSet)
router.register("telemetry", operations.TelemetryWindowViewSet)
router.register("drift-checks", operations.DriftCheckViewSet)
router.register("jobs", operations.JobViewSet)
router.register("audit-events", operations.AuditEventViewSet)
router.register("tokens", operations.TokenViewSet)

plan = explanations.ExplanationViewSet

urlpatterns = [
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="api-docs"),
    path("plans/<int:pk>/explain/", plan.as_view({"get": "explain"})),
    path("plans/<int:pk>/sensitivity/", plan.as_view({"get": "sensitivity", "post": "order_sensitivity"})),
    path("plans/<int:pk>/blast-radius/", rollouts.BlastRadiusViewSet.as_view({"get": "blast_radius"})),
    path("", include(router.urls)),
    # With the slash only, so that Django's redirect to the address with a slash still comes first.
    re_path(r"^.*/$", NothingHere.as_view()),
]
