"""Addresses that the charts ask for their parts and figures."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path

from dashboards.mounting import serve
from dashboards.plan import app


def plan_charts(request: HttpRequest, rest: str) -> HttpResponse:
    """What the charts of a plan ask for."""
    return serve(request, app, rest)


urlpatterns = [path("plan/<path:rest>", plan_charts, name="plan-charts")]
