"""A site of three files, for the supervisor's own tests: what it supervises is not what they are about."""

import os
import urllib.parse

SECRET_KEY = os.environ["CACHEROUTE_SECRET_KEY"]
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["django.contrib.contenttypes", "tests.embedded.site"]
ROOT_URLCONF = "tests.embedded.site.urls"
USE_TZ = True
_url = urllib.parse.unquote(urllib.parse.urlsplit(os.environ["DATABASE_URL"]).path)
_host, _name = _url[1:].rsplit("/", 1)
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "HOST": _host, "NAME": _name, "USER": "app"}}
CELERY_BROKER_URL = os.environ["BROKER_URL"]
CELERY_WORKER_PROC_ALIVE_TIMEOUT = 60
LOGGING = {"version": 1, "disable_existing_loggers": False}
