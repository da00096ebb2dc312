"""Settings of the optional sign-in by OpenID Connect; empty where no issuer is named."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

PROVIDER_ID = "oidc"


def oidc_settings(env: Any) -> dict[str, Any]:
    """What `settings` takes over, read from CACHEROUTE_OIDC_*."""
    issuer = env.str("CACHEROUTE_OIDC_ISSUER", default="")
    name = env.str("CACHEROUTE_OIDC_NAME", default="single sign-on")
    found: dict[str, Any] = {
        "OIDC_NAME": name if issuer else "",
        "OIDC_ROLES_CLAIM": env.str("CACHEROUTE_OIDC_ROLES_CLAIM", default=""),
        "OIDC_ORIGINS": ["{0.scheme}://{0.netloc}".format(urlsplit(issuer))] if issuer else [],
    }
    if not issuer:
        return found
    app = {
        "provider_id": PROVIDER_ID,
        "name": name,
        "client_id": env.str("CACHEROUTE_OIDC_CLIENT_ID"),
        "secret": env.str("CACHEROUTE_OIDC_CLIENT_SECRET"),
        "settings": {"server_url": issuer},
    }
    return found | {
        "SOCIALACCOUNT_PROVIDERS": {"openid_connect": {"APPS": [app], "OAUTH_PKCE_ENABLED": True}},
        "SOCIALACCOUNT_ADAPTER": "planner.web.access.single_sign_on.SingleSignOn",
        "SOCIALACCOUNT_OPENID_CONNECT_URL_PREFIX": "",
        "SOCIALACCOUNT_ONLY": True,
        "SOCIALACCOUNT_EMAIL_AUTHENTICATION": False,
        "SOCIALACCOUNT_STORE_TOKENS": False,
        "SOCIALACCOUNT_LOGIN_ON_GET": False,
        "ACCOUNT_EMAIL_VERIFICATION": "none",
        "ACCOUNT_LOGIN_METHODS": {"username"},
        "ACCOUNT_UNIQUE_EMAIL": False,
    }


APPS = [
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
]
