"""The diagram of the data model: the committed file is current and names every model."""

from __future__ import annotations

from pathlib import Path

from django.apps import apps

from planner.management.commands.model_diagram import document

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "data-model.md"


def test_the_committed_diagram_is_current():
    assert DOCUMENT.read_text() == document(), "run: python manage.py model_diagram > docs/data-model.md"


def test_the_diagram_has_each_model_with_its_references():
    text = document()
    for model in apps.get_app_config("planner").get_models():
        assert f"\n    {model.__name__} {{\n" in text
    assert "\n    Fleet ||--o{ Plan : fleet\n" in text
    assert "\n    Plan |o--o{ Plan : incumbent\n" in text
