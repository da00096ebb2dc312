"""What all endpoints share: fleet scoping, ETag and If-Match, Idempotency-Key."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from typing import Any, cast

from django.contrib.auth.models import User
from django.db import IntegrityError, models, transaction
from django.utils import timezone
from rest_framework import serializers, viewsets
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.problems import problem
from planner.errors import StaleVersion
from planner.models import ApiToken, IdempotencyRecord, Job

# A key whose first request never came back is free again after this long.
IDEMPOTENCY_STALE = dt.timedelta(minutes=5)
IDEMPOTENCY_KEPT = dt.timedelta(days=1)


class PreconditionRequired(APIException):
    status_code = 428
    default_code = "precondition-required"
    default_detail = "Send If-Match with the ETag that you read, so that nobody's change is lost."


class _Answered(Exception):
    """The request has its answer already."""

    def __init__(self, response: Response) -> None:
        self.response = response


class ConsoleViewSet(viewsets.GenericViewSet[Any]):
    """Base of every viewset. `fleet_path` is the ORM path from the model to its fleet."""

    fleet_path = "fleet"
    scopes: dict[str, str] = {}

    def get_queryset(self) -> models.QuerySet[Any]:
        """Rows of the token's fleet only, where it has one."""
        queryset = super().get_queryset()
        token = self.request.auth
        if isinstance(token, ApiToken) and token.fleet_id is not None and self.fleet_path:
            queryset = queryset.filter(**{self.fleet_path: token.fleet_id})
        return queryset

    @property
    def person(self) -> User:
        """Who acts: permission let nobody else in."""
        return cast(User, self.request.user)

    # --- ETag ---------------------------------------------------------------------------------------
    def expected_version(self) -> int:
        """The version in If-Match; 428 without it, 412 when it cannot be ours."""
        header = self.request.headers.get("If-Match", "").strip()
        if not header:
            raise PreconditionRequired
        try:
            return int(header.strip('"'))
        except ValueError as error:
            raise StaleVersion(f"{header} is not an ETag of this resource.") from error

    def answer(self, row: Any, status: int = 200, **headers: str) -> Response:
        """The row, serialised, with its ETag."""
        row = type(self).queryset.get(pk=row.pk)  # type: ignore[union-attr]
        response = Response(self.get_serializer(row).data, status=status, headers=headers)
        return with_etag(response, row)

    def accept(self, serializer: type[serializers.Serializer[Any]]) -> dict[str, Any]:
        """The request's body as the serializer accepts it. A token of one fleet names no other."""
        accepted = serializer(data=self.request.data)
        accepted.is_valid(raise_exception=True)
        data = dict(accepted.validated_data)
        for row in data.values():
            if isinstance(row, models.Model):
                self.check_object_permissions(self.request, row)
        return data

    # --- Idempotency --------------------------------------------------------------------------------
    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """After authentication and permission: look for the answer to a repeated POST."""
        super().initial(request, *args, **kwargs)
        self._record: IdempotencyRecord | None = None
        key = request.headers.get("Idempotency-Key", "")
        if request.method == "POST" and key:
            self._claim(request, key)

    def _claim(self, request: Request, key: str) -> None:
        if len(key) > 255:
            raise _Answered(problem(400, "invalid", "An Idempotency-Key has 255 characters at most."))
        wanted = _request_digest(request)
        now = timezone.now()
        IdempotencyRecord.objects.filter(created_at__lt=now - IDEMPOTENCY_KEPT).delete()
        IdempotencyRecord.objects.filter(
            user_id=self.person.pk, key=key, status=None, created_at__lt=now - IDEMPOTENCY_STALE
        ).delete()
        try:
            with transaction.atomic():
                self._record = IdempotencyRecord.objects.create(user_id=self.person.pk, key=key, request_digest=wanted)
            return
        except IntegrityError:
            known = IdempotencyRecord.objects.filter(user_id=self.person.pk, key=key).first()
        if known is None or known.status is None:
            raise _Answered(
                problem(409, "in-progress", "The first request with this Idempotency-Key is still running.")
            )
        if known.request_digest != wanted:
            raise _Answered(problem(422, "idempotency-mismatch", "This Idempotency-Key was used with another request."))
        raise _Answered(
            Response(known.body, status=known.status, headers={**known.headers, "Idempotency-Replayed": "true"})
        )

    def handle_exception(self, exc: Exception) -> Response:
        """A known answer is an answer."""
        if isinstance(exc, _Answered):
            return exc.response
        try:
            return super().handle_exception(exc)
        except Exception:
            if getattr(self, "_record", None) is not None:
                self._record.delete()  # type: ignore[union-attr]
            raise

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Keep the answer for a repeated POST."""
        response = super().finalize_response(request, response, *args, **kwargs)
        record = getattr(self, "_record", None)
        if record is not None and isinstance(response, Response):
            if response.status_code >= 500:
                record.delete()
            else:
                record.status, record.body = response.status_code, json.loads(json.dumps(response.data, default=str))
                record.headers = {h: response[h] for h in ("ETag", "Location") if response.has_header(h)}
                record.save(update_fields=["status", "body", "headers"])
        return response


class ReadViewSet(ConsoleViewSet):
    """List and retrieve; a versioned row carries its ETag and answers If-None-Match with 304."""

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """A page of rows, newest first."""
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        return self.get_paginated_response(self.get_serializer(page, many=True).data)

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One row."""
        row = self.get_object()
        tag = etag_of(row)
        if tag and tag in [t.strip() for t in request.headers.get("If-None-Match", "").split(",")]:
            return Response(status=304, headers={"ETag": tag})
        return with_etag(Response(self.get_serializer(row).data), row)


def etag_of(row: Any) -> str | None:
    """Strong ETag of a versioned row."""
    version = getattr(row, "version", None)
    return f'"{version}"' if version is not None else None


def with_etag(response: Response, row: Any) -> Response:
    """Add the ETag where the row has one."""
    tag = etag_of(row)
    if tag:
        response["ETag"] = tag
    return response


def accepted(job: Job, **more: Any) -> Response:
    """202 with the job's address: what was asked for goes on in the background."""
    url = f"/api/v1/jobs/{job.pk}/"
    return Response({"job": job.pk, "job_url": url, **more}, status=202, headers={"Location": url})


def _request_digest(request: Request) -> str:
    state = hashlib.sha256(f"{request.method} {request.get_full_path()}\n".encode())
    data = request.data if isinstance(request.data, dict) else {"": request.data}
    for name, value in sorted((k, v) for k, v in data.items() if not hasattr(v, "chunks")):
        state.update(json.dumps([name, value], sort_keys=True, default=str).encode())
    for name, file in sorted(request.FILES.items()):
        state.update(f"{name} {file.name}".encode())
        for chunk in file.chunks():
            state.update(chunk)
        file.seek(0)
    return state.hexdigest()
