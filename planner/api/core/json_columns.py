"""Database functions that read part of a JSON column."""

from __future__ import annotations

from django.db.models import Func, JSONField


class Without(Func):
    """A JSON column without some of its names (constants of ours: they stand in the SQL)."""

    def __init__(self, column: str, *names: str) -> None:
        template = "(%(expressions)s - '{" + ",".join(names) + "}'::text[])"
        super().__init__(column, template=template, output_field=JSONField())


class Only(Func):
    """A JSON column with one of its names and no other, or with none where it lacks it (constants of ours)."""

    def __init__(self, column: str, name: str) -> None:
        template = f"jsonb_strip_nulls(jsonb_build_object('{name}', %(expressions)s -> '{name}'))"
        super().__init__(column, template=template, output_field=JSONField())
