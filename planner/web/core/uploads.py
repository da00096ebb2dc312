"""Uploads stream to disk. An upload that is too large is read to its end, so that the client sees the response."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.files.uploadhandler import FileUploadHandler, StopUpload


class BoundedUploadHandler(FileUploadHandler):
    """Stop an upload at UPLOAD_MAX_BYTES and mark the request, so that the view answers with an error."""

    def handle_raw_input(
        self, input_data: Any, META: Any, content_length: int, boundary: Any, encoding: Any = None
    ) -> None:
        """Mark an upload whose declared length is too large.

        Parameters
        ----------
        input_data
            The body.
        META
            Headers of the request.
        content_length
            Declared length of the body.
        boundary
            Boundary of the parts.
        encoding
            Encoding of the body.
        """
        self.received = 0
        self.refuse = content_length > settings.UPLOAD_MAX_BYTES + 1_000_000

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        """Count bytes and stop at the limit. The next handler writes the chunk."""
        self.received += len(raw_data)
        if self.refuse or self.received > settings.UPLOAD_MAX_BYTES:
            if self.request is not None:
                self.request.upload_too_large = True  # type: ignore[attr-defined]
            raise StopUpload(connection_reset=False)
        return raw_data

    def file_complete(self, file_size: int) -> None:
        """Do nothing: the next handler makes the file."""
        return
