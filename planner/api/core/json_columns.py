"""Database functions that read part of a JSON column."""

from __future__ import annotations

from django.db.models import Func, JSONField


class Without(Func):
    """A JSON column without some names. The names must be constants, because they are part of the SQL."""

    def __init__(self, column: str, *names: str) -> None:
        template = "(%(expressions)s - '{" + ",".join(names) + "}'::text[])"
        super().__init__(column, template=template, output_field=JSONField())


class Only(Func):
    """A JSON column with at most one name. The name must be a constant, because it is part of the SQL."""

    def __init__(self, column: str, name: str) -> None:
        template = f"jsonb_strip_nulls(jsonb_build_object('{name}', %(expressions)s -> '{name}'))"
        super().__init__(column, template=template, output_field=JSONField())
