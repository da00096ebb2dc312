"""The Django project of CacheRoute Web."""

from cacheroute_web.celery import app as celery_app

__all__ = ["celery_app"]
