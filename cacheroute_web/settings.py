"""Django settings. Everything that differs between machines comes from the environment (see docs/configuration.md)."""

from __future__ import annotations

import os
from pathlib import Path

import environ
from csp.constants import NONCE, SELF
from kombu import Queue

from cacheroute_web.logging import logging_config
from cacheroute_web.oidc import APPS as OIDC_APPS
from cacheroute_web.oidc import oidc_settings
from planner.digests import kernel_cache

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()

# run: `make run` on a laptop; dev: `make dev`, as run with DEBUG; test: the test suite; production: behind TLS,
# secrets required.
ENVIRONMENT = env.str("CACHEROUTE_ENV", default="production")
HOME = Path(env.str("CACHEROUTE_HOME", default=str(BASE_DIR / "var")))
SECRET_KEY = env.str("CACHEROUTE_SECRET_KEY")
DEBUG = ENVIRONMENT == "dev"
ALLOWED_HOSTS = env.list("CACHEROUTE_ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
# Test clients address the WSGI application as "testserver".
if ENVIRONMENT == "test":
    ALLOWED_HOSTS = [*ALLOWED_HOSTS, "testserver"]
CSRF_TRUSTED_ORIGINS = env.list("CACHEROUTE_CSRF_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django.forms",  # its templates of widgets, for FORM_RENDERER
    "axes",
    "csp",
    "django_filters",
    "django_prometheus",
    "django_structlog",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "pgtrigger",
    "rest_framework",
    "planner",
    "dashboards",
]

MIDDLEWARE = [
    "planner.web.core.middleware.HealthMiddleware",
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "planner.web.core.middleware.ClientMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.gzip.GZipMiddleware",  # before WhiteNoise: the chart library is 5 MB as it is
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "planner.web.core.middleware.BodyLimitMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django_structlog.middlewares.RequestMiddleware",
    "planner.web.core.middleware.OriginMiddleware",
    "planner.web.core.middleware.FleetDoorMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "axes.middleware.AxesMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]

ROOT_URLCONF = "cacheroute_web.urls"
WSGI_APPLICATION = "cacheroute_web.wsgi.application"

# Without the cache of templates, so that a changed template shows with the next request.
_LOADERS = ["django.template.loaders.filesystem.Loader", "django.template.loaders.app_directories.Loader"]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": not DEBUG,
        "OPTIONS": {
            **({"loaders": _LOADERS} if DEBUG else {}),
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
                "planner.web.core.context.navigation",
            ],
        },
    },
]

FORM_RENDERER = "planner.web.core.forms.ConsoleRenderer"

DATABASES = {"default": env.db_url("DATABASE_URL")}
DATABASES["default"].setdefault("OPTIONS", {})
# A host that is gone answers nothing at all: give up instead of holding a thread.
DATABASES["default"]["OPTIONS"] |= {"connect_timeout": 5, "tcp_user_timeout": 15_000}
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DATABASES["default"]["CONN_MAX_AGE"] = env.int("CACHEROUTE_CONN_MAX_AGE", default=60)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
if ENVIRONMENT == "test":  # a slow hash a user is most of the time of a test
    PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
# Sign-in by OpenID Connect: only where an issuer is named (CACHEROUTE_OIDC_ISSUER).
_oidc = oidc_settings(env)
OIDC_NAME: str = _oidc.pop("OIDC_NAME")
OIDC_ROLES_CLAIM: str = _oidc.pop("OIDC_ROLES_CLAIM")
OIDC_ORIGINS: list[str] = _oidc.pop("OIDC_ORIGINS")
globals().update(_oidc)
if OIDC_NAME:
    INSTALLED_APPS += OIDC_APPS
    MIDDLEWARE.append("allauth.account.middleware.AccountMiddleware")
    AUTHENTICATION_BACKENDS.append("allauth.account.auth_backends.AuthenticationBackend")
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"
AXES_VERBOSE = False
AXES_FAILURE_LIMIT = 8
AXES_COOLOFF_TIME = 0.25  # hours
AXES_LOCKOUT_CALLABLE = "planner.web.access.views.locked_out"
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True  # no collectstatic step: `make run` and tests serve straight from the tree
WHITENOISE_MAX_AGE = 3600

ARTIFACTS = Path(env.str("CACHEROUTE_ARTIFACTS", default=str(HOME / "artifacts")))
STORAGES = {
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": str(ARTIFACTS)},
    },
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
# Uploads stream to disk; what is larger than this is refused with a clear error and never stored.
UPLOAD_MAX_BYTES = env.int("CACHEROUTE_UPLOAD_MAX_BYTES", default=512 * 1024 * 1024)
FILE_UPLOAD_HANDLERS = [
    "planner.web.core.uploads.BoundedUploadHandler",
    "django.core.files.uploadhandler.TemporaryFileUploadHandler",
]
IMPORT_MAX_BYTES = env.int("CACHEROUTE_IMPORT_MAX_BYTES", default=4 * 1024**3)  # after decompression
IMPORT_MAX_KEYS = env.int("CACHEROUTE_IMPORT_MAX_KEYS", default=5_000_000)

# --- Celery -----------------------------------------------------------------------------------------
CELERY_BROKER_URL = env.str("BROKER_URL")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # With kombu's defaults, nothing a killed worker had reserved comes back for minutes.
    "visibility_timeout": 60,
    "unacked_restore_interval": 2,
    "unacked_restore_throttle": 1,
    # Sending tries once: kombu would go on for 6 s, with a person waiting. Workers reconnect by rules of their own.
    "max_retries": 0,
    "socket_connect_timeout": 2,
    "socket_timeout": 10,
}
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_IGNORE_RESULT = True
# A web request never waits for a broker that is down: the job row stays queued and the sweep files it again.
CELERY_TASK_PUBLISH_RETRY = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TIMEZONE = "UTC"
# Looking at fleets never stands behind a row of replays: it has a queue, and a worker of `make run`, of its own.
CELERY_TASK_QUEUES = [Queue("celery"), Queue("watch")]
CELERY_TASK_ROUTES = {name: {"queue": "watch"} for name in ("planner.watch_fleets", "planner.simulate_traffic")}
CELERY_BEAT_SCHEDULE = {
    "sweep-jobs": {"task": "planner.sweep_jobs", "schedule": 5.0, "options": {"expires": 5}},
    "watch-fleets": {"task": "planner.watch_fleets", "schedule": 60.0, "options": {"expires": 50}},
    # Looks whether a minute is over that was not simulated yet, which costs a query where none is.
    "simulate-traffic": {"task": "planner.simulate_traffic", "schedule": 5.0, "options": {"expires": 5}},
    "prune-telemetry": {"task": "planner.prune_telemetry", "schedule": 3600.0, "options": {"expires": 600}},
    "deliver-webhooks": {"task": "planner.deliver_webhooks", "schedule": 5.0, "options": {"expires": 5}},
}

# --- REST -------------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "planner.api.core.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["planner.api.core.permissions.ScopedPermission"],
    "DEFAULT_PAGINATION_CLASS": "planner.api.core.pagination.CreatedCursorPagination",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_SCHEMA_CLASS": "planner.api.core.schema.ConsoleSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "EXCEPTION_HANDLER": "planner.api.core.errors.problem_handler",
    "PAGE_SIZE": 50,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "CacheRoute Web",
    "VERSION": "1",
    "DESCRIPTION": "Plans, replays, gates, approvals and rollouts of prefix-affinity routing tables.",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "DestinationState": "planner.models.Destination.State",
        "PlanStateEnum": "planner.models.Plan.State",
        "PlanKindEnum": "planner.models.Plan.Kind",
        "ReplayStateEnum": "planner.models.Replay.State",
    },
}

# Networks beside the public ones that webhooks may go to, such as 10.0.0.0/8.
WEBHOOK_NETWORKS = env.list("CACHEROUTE_WEBHOOK_NETWORKS", default=[])
# Signs checkpoints of the audit trail: 32 bytes in hex; without it a key is made in the console's home.
AUDIT_KEY = env.str("CACHEROUTE_AUDIT_KEY", default="")

# --- Metrics ----------------------------------------------------------------------------------------
# Access to /metrics: with a token its holders, without a token the networks.
METRICS_TOKEN = env.str("CACHEROUTE_METRICS_TOKEN", default="")
METRICS_NETWORKS = env.list("CACHEROUTE_METRICS_NETWORKS", default=["127.0.0.0/8", "::1/128"])
PROMETHEUS_EXPORT_MIGRATIONS = False  # it would query the database when a process starts

# --- Security ---------------------------------------------------------------------------------------
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        # Plotly writes style elements of its own.
        "style-src": [SELF, "'unsafe-inline'"],
        "img-src": [SELF, "data:", "blob:"],
        "font-src": [SELF, "data:"],
        "worker-src": [SELF, "blob:"],
        "connect-src": [SELF],
        "frame-ancestors": ["'none'"],
        "base-uri": [SELF],
        "form-action": [SELF, *OIDC_ORIGINS],  # a form that leads to the provider ends there
        "object-src": ["'none'"],
    }
}
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
SECURE_REFERRER_POLICY = "same-origin"
# `make run` and the tests speak plain HTTP on the loopback address; everywhere else TLS stands in front.
SECURE = env.bool("CACHEROUTE_TLS", default=ENVIRONMENT == "production")
SESSION_COOKIE_SECURE = SECURE
CSRF_COOKIE_SECURE = SECURE
SECURE_SSL_REDIRECT = SECURE
SECURE_REDIRECT_EXEMPT = [r"^metrics$"]  # Prometheus asks inside the network, without TLS
SECURE_HSTS_SECONDS = 31_536_000 if SECURE else 0
# Pinning sister hosts, or the whole domain in browsers' preload lists, is the operator's to decide.
SECURE_HSTS_INCLUDE_SUBDOMAINS = env.bool("CACHEROUTE_HSTS_SUBDOMAINS", default=False)
SECURE_HSTS_PRELOAD = env.bool("CACHEROUTE_HSTS_PRELOAD", default=False)
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
# Only these may say in X-Forwarded-For whom they speak for.
TRUSTED_PROXIES = env.list("CACHEROUTE_TRUSTED_PROXIES", default=[])
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SECURE else None

LOGGING = logging_config(ENVIRONMENT)
# Kernels compile once and are cached where the process may write.
os.environ.setdefault("NUMBA_CACHE_DIR", str(kernel_cache(HOME / "numba")))
