"""Print the data model as Mermaid diagrams, from the models themselves. No database is needed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand
from django.db import models

HEAD = """# Data model

Made by `python manage.py model_diagram > docs/data-model.md`. Do not edit it: a test compares it with the models.
The [glossary](glossary.md) defines the terms; [architecture](architecture.md) shows how the rows are used.

A line with a crow's foot means "many". `||` is exactly one, `o|` none or one. `User` and `Group` are Django's. Each
field has its type, its name, and `PK` (primary key), `FK` (reference) or `UK` (unique).

## Relations

"""
# Nearly every row names the person who made it. These lines would hide the others.
AUTH = ("User", "Group")


class Command(BaseCommand):
    help = "Print docs/data-model.md: Mermaid diagrams of all models."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the document."""
        self.stdout.write(document(), ending="")


def document() -> str:
    """The Markdown text: one diagram of the relations, then one of the fields for each file of models."""
    rooms: dict[str, list[type[models.Model]]] = {}
    for model in apps.get_app_config("planner").get_models():
        rooms.setdefault(model.__module__.rsplit(".", 1)[1], []).append(model)
    found = [model for room in rooms.values() for model in room]
    relations = sorted(line for model in found for line in _relations(model) if line.split()[0] not in AUTH)
    parts = [HEAD, _diagram(relations), "\n## Fields\n"]
    for room in sorted(rooms):
        lines = [line for model in rooms[room] for line in _fields(model)]
        parts.append(f"\n### `planner/models/{room}.py`\n\n{_diagram(lines)}")
    return "".join(parts)


def _diagram(lines: Iterable[str]) -> str:
    return "```mermaid\nerDiagram\n" + "".join(f"    {line}\n" for line in lines) + "```\n"


def _references(model: type[models.Model]) -> list[models.ForeignKey[Any, Any]]:
    return [field for field in model._meta.local_fields if isinstance(field, models.ForeignKey)]


def _relations(model: type[models.Model]) -> list[str]:
    """One line for each reference and each many-to-many relation of a model."""
    lines = []
    for field in _references(model):
        one = "|o" if field.null else "||"
        many = "o|" if field.unique else "o{"
        lines.append(f"{_name(field.related_model)} {one}--{many} {model.__name__} : {field.name}")
    return lines + [
        f"{_name(both.related_model)} }}o--o{{ {model.__name__} : {both.name}"
        for both in model._meta.local_many_to_many
    ]


def _fields(model: type[models.Model]) -> list[str]:
    lines = [f"{model.__name__} {{"]
    for field in model._meta.local_fields:
        marks = [
            mark
            for mark, is_so in (
                ("PK", field.primary_key),
                ("FK", isinstance(field, models.ForeignKey)),
                ("UK", field.unique and not field.primary_key),
            )
            if is_so
        ]
        kind = _name(field.related_model) if isinstance(field, models.ForeignKey) else field.get_internal_type()
        lines.append(f"    {kind} {field.name} {', '.join(marks)}".rstrip())
    return [*lines, "}"]


def _name(model: Any) -> str:
    return model if isinstance(model, str) else model.__name__
