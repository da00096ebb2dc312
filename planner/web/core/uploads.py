"""Uploads stream to disk; one that is too large is read to its end (so that the client gets its answer) and dropped."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.files.uploadhandler import FileUploadHandler, StopUpload


class BoundedUploadHandler(FileUploadHandler):
    """Stop an upload at UPLOAD_MAX_BYTES and mark the request, for the view to answer with a clear error."""

    def handle_raw_input(
        self, input_data: Any, META: Any, content_length: int, boundary: Any, encoding: Any = None
    ) -> None:
        """Note an upload whose declared length is too large already."""
        self.received = 0
        self.refuse = content_length > settings.UPLOAD_MAX_BYTES + 1_000_000

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        """Count, and stop at the bound; the chunk goes on to the handler that writes it."""
        self.received += len(raw_data)
        if self.refuse or self.received > settings.UPLOAD_MAX_BYTES:
            if self.request is not None:
                self.request.upload_too_large = True  # type: ignore[attr-defined]
            raise StopUpload(connection_reset=False)
        return raw_data

    def file_complete(self, file_size: int) -> None:
        """The handler after this one makes the file."""
        return
