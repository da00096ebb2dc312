"""Pages, charts and the API."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

handler500 = "planner.web.errors.server_error"

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", include("planner.api.urls")),
    path("charts/", include("dashboards.urls")),
    path("", include("planner.web.urls")),
]
