"""Cursor pagination, newest first."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request


class CreatedCursorPagination(CursorPagination):
    """Pages that stay stable while rows are added. `?page_size=` up to 500."""

    ordering = "-id"
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 500

    def decode_cursor(self, request: Request) -> Any:
        """The cursor of the request. A position that is no row id is an invalid cursor."""
        cursor = super().decode_cursor(request)
        position = getattr(cursor, "position", None)
        if position is not None and not (position.isascii() and position.isdigit() and len(position) < 20):
            raise NotFound(self.invalid_cursor_message)
        return cursor
