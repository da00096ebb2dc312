"""Pages, charts and the API."""

from __future__ import annotations

from django.conf import settings
from django.urls import URLPattern, URLResolver, include, path

from planner.web.monitoring.metrics import metrics

handler500 = "planner.web.core.errors.server_error"


def _single_sign_on() -> list[URLPattern | URLResolver]:
    """The two addresses of the provider's dialogue, and where allauth sends what goes wrong."""
    if not settings.OIDC_NAME:
        return []
    from planner.web.access.single_sign_on import not_signed_in

    names = (
        "socialaccount_login_error", "socialaccount_login_cancelled", "socialaccount_signup", "account_inactive",
        "account_login", "account_signup", "account_logout", "account_email_verification_sent",
    )  # fmt: skip
    ends: list[URLPattern | URLResolver] = [path(f"sso/{name}/", not_signed_in, name=name) for name in names]
    return [*ends, path("sso/", include("allauth.socialaccount.providers.openid_connect.urls"))]


urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", include("planner.api.urls")),
    path("metrics", metrics, name="metrics"),
    path("charts/", include("dashboards.urls")),
    *_single_sign_on(),
    path("", include("planner.web.urls")),
]
