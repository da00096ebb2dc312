"""The Django project of CacheRoute Web."""

import os

# Shared tasks find their application through this import. The supervisor of `make run` needs none of it and says so:
# it would start a second later.
if "CACHEROUTE_SUPERVISOR" not in os.environ:
    from cacheroute_web.celery import app as celery_app  # noqa: F401 - `celery -A cacheroute_web` looks for it here
