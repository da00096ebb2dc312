"""`Idempotency-Key`: a repeated POST gets the first response."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from typing import Any

from django.db import IntegrityError, transaction
from django.http import QueryDict
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.core.errors import CONTENT_TYPE, problem
from planner.models import IdempotencyRecord

# A key without a response is free again after this time.
STALE = dt.timedelta(minutes=5)
KEPT = dt.timedelta(days=1)
MAX_LENGTH = 255


class Answered(Exception):
    """The request already has a response."""

    def __init__(self, response: Response) -> None:
        self.response = response


def claim(request: Request, key: str) -> IdempotencyRecord:
    """The new record of the key of this request.

    Raises
    ------
    Answered
        With the first response, or with 409 (still running), 422 (another request) or 400 (not a key).
    """
    if len(key) > MAX_LENGTH or not (key.isascii() and key.isprintable()):
        raise Answered(
            problem(
                400, "invalid", f"The Idempotency-Key is invalid. Use 1 to {MAX_LENGTH} printable ASCII characters."
            )
        )
    wanted = request_digest(request)
    now = timezone.now()
    IdempotencyRecord.objects.filter(created_at__lt=now - KEPT).delete()
    user_id = int(request.user.pk or 0)
    mine = IdempotencyRecord.objects.filter(user_id=user_id, key=key)
    mine.filter(status=None, created_at__lt=now - STALE).delete()
    try:
        with transaction.atomic():
            return IdempotencyRecord.objects.create(user_id=user_id, key=key, request_digest=wanted)
    except IntegrityError:
        known = mine.first()
    if known is not None and known.request_digest != wanted:
        raise Answered(
            problem(422, "idempotency-mismatch", "This Idempotency-Key was used for another request. Use a new key.")
        )
    if known is None or known.status is None:
        raise Answered(
            problem(409, "in-progress", "The first request with this Idempotency-Key is still running. Repeat later.")
        )
    content_type = CONTENT_TYPE if known.status >= 400 else None
    headers = {**known.headers, "Idempotency-Replayed": "true"}
    raise Answered(Response(known.body, status=known.status, headers=headers, content_type=content_type))


def keep(record: IdempotencyRecord, response: Response, *, secrets: tuple[str, ...] = ()) -> None:
    """Store the response for a repeat; server errors are not stored.

    Parameters
    ----------
    record
        Record of the key.
    response
        The first response.
    secrets
        Top-level fields that are not stored.
    """
    if response.status_code >= 500:
        record.delete()
        return
    body = json.loads(json.dumps(response.data, default=str))
    if isinstance(body, dict):
        body = {name: value for name, value in body.items() if name not in secrets}
    record.status, record.body = response.status_code, body
    record.headers = {h: response[h] for h in ("ETag", "Location") if response.has_header(h)}
    record.save(update_fields=["status", "body", "headers"])


def request_digest(request: Request) -> str:
    """sha256 over credential, method, path, If-Match, fields and files of a request."""
    state = hashlib.sha256()
    data: Any = request.data
    fields = data
    if isinstance(data, QueryDict):  # forms may give a name several times
        fields = sorted((k, [v for v in vs if not hasattr(v, "chunks")]) for k, vs in data.lists())
    who = getattr(request.auth, "pk", None)
    parts = [who, request.method, request.get_full_path(), request.headers.get("If-Match", ""), fields]
    state.update(json.dumps(parts, sort_keys=True, default=str).encode())
    for name, file in sorted(request.FILES.items()):
        state.update(json.dumps([name, file.name]).encode())
        for chunk in file.chunks():
            state.update(chunk)
        file.seek(0)
    return state.hexdigest()
