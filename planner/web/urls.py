"""Addresses of the pages."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from planner.web.forms import SignInForm
from planner.web.views import (
    access,
    audit,
    calibrations,
    destinations,
    emergencies,
    explanations,
    fleets,
    home,
    inputs,
    plans,
    timeline,
    tokens,
)

FLEET = "fleets/<slug:slug>/"
PLAN = FLEET + "plans/<int:number>/"

urlpatterns = [
    path("", home.home, name="home"),
    path(
        "login/",
        LoginView.as_view(redirect_authenticated_user=True, authentication_form=SignInForm),
        name="login",
    ),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("audit/", audit.audit, name="audit"),
    path("audit/export.csv", timeline.export, {"form": "csv"}, name="audit-csv"),
    path("audit/export.jsonl", timeline.export, {"form": "jsonl"}, name="audit-jsonl"),
    path("tokens/", tokens.tokens, name="tokens"),
    path("tokens/<int:pk>/revoke/", tokens.revoke, name="token-revoke"),
    path("tokens/<int:pk>/rotate/", tokens.rotate, name="token-rotate"),
    path("access/", access.access, name="access"),
    path("access/accounts/", access.create, name="account-create"),
    path("access/accounts/<int:pk>/switch/", access.switch, name="account-switch"),
    path("access/roles/", access.role, name="access-role"),
    path(FLEET + "access/", access.access, name="fleet-access"),
    path(FLEET + "access/roles/", access.role, name="fleet-access-role"),
    path(FLEET + "emergencies/", emergencies.emergencies, name="emergencies"),
    path(FLEET + "emergencies/<int:pk>/close/", emergencies.close, name="emergency-close"),
    path(FLEET + "emergencies/<int:pk>/review/", emergencies.review, name="emergency-review"),
    path("fleets/new/", fleets.new_fleet, name="fleet-new"),
    path(FLEET, fleets.fleet, name="fleet"),
    path(FLEET + "audit/", audit.audit, name="fleet-audit"),
    path(FLEET + "audit/export.csv", timeline.export, {"form": "csv"}, name="fleet-audit-csv"),
    path(FLEET + "audit/export.jsonl", timeline.export, {"form": "jsonl"}, name="fleet-audit-jsonl"),
    path(FLEET + "timeline/", timeline.timeline, name="fleet-timeline"),
    path(FLEET + "policy/", fleets.policy, name="fleet-policy"),
    path(FLEET + "serving-profile/", fleets.serving_profile, name="fleet-serving"),
    path(FLEET + "fall-back/", fleets.fall_back, name="fall-back"),
    path(FLEET + "destinations/add/", destinations.add, name="destinations-add"),
    path(FLEET + "destinations/<int:index>/speed/", destinations.speed, name="destination-speed"),
    path(FLEET + "destinations/<int:index>/state/", destinations.state, name="destination-state"),
    path(FLEET + "jobs/", fleets.jobs_panel, name="jobs-panel"),
    path(FLEET + "jobs/<int:pk>/cancel/", fleets.cancel_job, name="job-cancel"),
    path(FLEET + "workloads/new/", inputs.new_workload, name="workload-new"),
    path(FLEET + "workloads/<int:pk>/", inputs.workload, name="workload"),
    path(FLEET + "calibrations/new/", calibrations.new_calibration, name="calibration-new"),
    path(FLEET + "calibrations/import/", calibrations.import_sweep, name="calibration-import"),
    path(FLEET + "calibrations/simulate/", calibrations.simulate_calibration, name="calibration-simulate"),
    path(FLEET + "calibrations/<int:pk>/", calibrations.calibration, name="calibration"),
    path(FLEET + "calibrations/<int:pk>/fit/", calibrations.fit, name="calibration-fit"),
    path(FLEET + "calibrations/jobs/<int:pk>/", calibrations.job, name="calibration-job"),
    path(FLEET + "calibrations/jobs/<int:pk>/progress/", calibrations.job_progress, name="calibration-job-progress"),
    path(FLEET + "plans/new/", plans.new_plan, name="plan-new"),
    path(PLAN, plans.plan, name="plan"),
    path(PLAN + "progress/", plans.plan_progress, name="plan-progress"),
    path(PLAN + "explain/", explanations.explain, name="plan-explain"),
    path(PLAN + "sensitivity/", explanations.order_study, name="study-order"),
    path(PLAN + "sensitivity/progress/", explanations.study_progress, name="study-progress"),
    path(PLAN + "replays/", plans.new_replay, name="replay-new"),
    path(PLAN + "evaluate/", plans.evaluate, name="plan-evaluate"),
    path(PLAN + "submit/", plans.submit, name="plan-submit"),
    path(PLAN + "withdraw/", plans.withdraw, name="plan-withdraw"),
    path(PLAN + "retire/", plans.retire, name="plan-retire"),
    path(PLAN + "approve/", plans.approve, name="plan-approve"),
    path(PLAN + "reject/", plans.reject, name="plan-reject"),
    path(PLAN + "canary/", plans.start_canary, name="canary-start"),
    path(FLEET + "rollouts/<int:pk>/advance/", plans.advance, name="rollout-advance"),
    path(FLEET + "rollouts/<int:pk>/abort/", plans.abort, name="rollout-abort"),
]
