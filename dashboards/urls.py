"""Addresses that the charts ask for their parts and figures."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path

from dashboards import live, plan
from dashboards.mounting import serve


def plan_charts(request: HttpRequest, rest: str) -> HttpResponse:
    """What the charts of a plan ask for."""
    return serve(request, plan.app, rest)


def live_charts(request: HttpRequest, rest: str) -> HttpResponse:
    """What the charts of a fleet's live page ask for."""
    return serve(request, live.app, rest)


urlpatterns = [
    path("plan/<path:rest>", plan_charts, name="plan-charts"),
    path("live/<path:rest>", live_charts, name="live-charts"),
]
