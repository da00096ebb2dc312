"""Addresses of the pages."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from planner.web.access import break_glass, password, tokens
from planner.web.access import views as access
from planner.web.access.forms import SignInForm
from planner.web.audit import timeline
from planner.web.audit import views as audit
from planner.web.calibrations import views as calibrations
from planner.web.fleets import destinations, home
from planner.web.fleets import views as fleets
from planner.web.gate.views import evaluate, evidence
from planner.web.jobs.views import cancel_job, jobs_panel
from planner.web.monitoring import views as monitoring
from planner.web.plans import explanations
from planner.web.plans import views as plans
from planner.web.replays.views import new_replay
from planner.web.reviews import inbox
from planner.web.reviews import views as reviews
from planner.web.rollouts import views as rollouts
from planner.web.rollouts.fallback import fall_back
from planner.web.webhooks import views as webhooks
from planner.web.workloads import views as workloads

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
    path("password/", password.Password.as_view(), name="password"),
    path("inbox/", inbox.inbox, name="inbox"),
    path("inbox/count/", inbox.count, name="inbox-count"),
    path("webhooks/", webhooks.webhooks, name="webhooks"),
    path("webhooks/<int:pk>/switch/", webhooks.switch, name="webhook-switch"),
    path("webhooks/<int:pk>/delete/", webhooks.delete, name="webhook-delete"),
    path("webhooks/deliveries/<int:pk>/again/", webhooks.send_again, name="delivery-again"),
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
    path(FLEET + "break-glass/", break_glass.break_glass_page, name="break-glass"),
    path(FLEET + "break-glass/<int:pk>/close/", break_glass.close, name="break-glass-close"),
    path(FLEET + "break-glass/<int:pk>/review/", break_glass.review, name="break-glass-review"),
    path("fleets/new/", fleets.new_fleet, name="fleet-new"),
    path(FLEET, fleets.fleet, name="fleet"),
    path(FLEET + "audit/", audit.audit, name="fleet-audit"),
    path(FLEET + "audit/export.csv", timeline.export, {"form": "csv"}, name="fleet-audit-csv"),
    path(FLEET + "audit/export.jsonl", timeline.export, {"form": "jsonl"}, name="fleet-audit-jsonl"),
    path(FLEET + "timeline/", timeline.timeline, name="fleet-timeline"),
    path(FLEET + "live/", monitoring.live, name="fleet-live"),
    path(FLEET + "live/state/", monitoring.state, name="fleet-live-state"),
    path(FLEET + "policy/", fleets.policy, name="fleet-policy"),
    path(FLEET + "serving-profile/", fleets.serving_profile, name="fleet-serving"),
    path(FLEET + "fall-back/", fall_back, name="fall-back"),
    path(FLEET + "destinations/add/", destinations.add, name="destinations-add"),
    path(FLEET + "destinations/<int:index>/speed/", destinations.speed, name="destination-speed"),
    path(FLEET + "destinations/<int:index>/state/", destinations.state, name="destination-state"),
    path(FLEET + "jobs/", jobs_panel, name="jobs-panel"),
    path(FLEET + "jobs/<int:pk>/cancel/", cancel_job, name="job-cancel"),
    path(FLEET + "workloads/new/", workloads.new_workload, name="workload-new"),
    path(FLEET + "workloads/<int:pk>/", workloads.workload, name="workload"),
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
    path(PLAN + "replays/", new_replay, name="replay-new"),
    path(PLAN + "evaluate/", evaluate, name="plan-evaluate"),
    path(PLAN + "submit/", reviews.submit, name="plan-submit"),
    path(PLAN + "withdraw/", reviews.withdraw, name="plan-withdraw"),
    path(PLAN + "retire/", plans.retire, name="plan-retire"),
    path(PLAN + "approve/", reviews.approve, name="plan-approve"),
    path(PLAN + "reject/", reviews.reject, name="plan-reject"),
    path(PLAN + "evidence/<int:pk>/", evidence, name="plan-evidence"),
    path(PLAN + "comments/", reviews.comment, name="plan-comment"),
    path(PLAN + "approvals/<int:pk>/withdraw/", reviews.withdraw_approval, name="approval-withdraw"),
    path(PLAN + "waivers/", reviews.request_waiver, name="waiver-request"),
    path(PLAN + "waivers/<int:pk>/grant/", reviews.grant_waiver, name="waiver-grant"),
    path(PLAN + "waivers/<int:pk>/end/", reviews.end_waiver, name="waiver-end"),
    path(PLAN + "canary/", rollouts.start_canary, name="canary-start"),
    path(FLEET + "rollouts/", rollouts.rollouts_of, name="rollouts"),
    path(FLEET + "rollouts/<int:pk>/", rollouts.rollout, name="rollout"),
    path(FLEET + "rollouts/<int:pk>/advance/", rollouts.advance, name="rollout-advance"),
    path(FLEET + "rollouts/<int:pk>/promote/", rollouts.promote, name="rollout-promote"),
    path(FLEET + "rollouts/<int:pk>/pause/", rollouts.pause, name="rollout-pause"),
    path(FLEET + "rollouts/<int:pk>/resume/", rollouts.resume, name="rollout-resume"),
    path(FLEET + "rollouts/<int:pk>/abort/", rollouts.abort, name="rollout-abort"),
    path(FLEET + "rollouts/<int:pk>/reschedule/", rollouts.reschedule, name="rollout-reschedule"),
    path(FLEET + "roll-back/", rollouts.roll_back, name="roll-back"),
    path(FLEET + "freeze/", rollouts.freeze, name="freeze"),
    path(FLEET + "freezes/<int:pk>/lift/", rollouts.lift, name="freeze-lift"),
]
