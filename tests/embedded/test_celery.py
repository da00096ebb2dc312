"""The Celery application and what its workers do before they take a task."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings

from cacheroute_web import celery_app
from cacheroute_web.celery import say_ready, warm_up
from tests.speed import usual_seconds


def test_the_application_is_configured_by_django_s_settings() -> None:
    assert celery_app.main == "cacheroute"
    assert celery_app.conf.broker_url == settings.CELERY_BROKER_URL


def test_after_the_warm_up_no_kernel_is_compiled_any_more() -> None:
    warm_up()
    assert usual_seconds(warm_up) < 0.5


def test_a_worker_reports_readiness_only_when_a_parent_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CACHEROUTE_WORKER_READY_FILE", raising=False)
    say_ready()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("CACHEROUTE_WORKER_READY_FILE", str(tmp_path / "ready"))
    say_ready()
    assert (tmp_path / "ready").exists()
