"""Addresses of the charts."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path

from dashboards import live, plan
from dashboards.mounting import serve


def plan_charts(request: HttpRequest, rest: str) -> HttpResponse:
    """Requests of the charts of a plan."""
    return serve(request, plan.app, rest)


def live_charts(request: HttpRequest, rest: str) -> HttpResponse:
    """Requests of the charts of the live page of a fleet."""
    return serve(request, live.app, rest)


urlpatterns = [
    path("plan/<path:rest>", plan_charts, name="plan-charts"),
    path("live/<path:rest>", live_charts, name="live-charts"),
]
