"""What all endpoints share: fleet scoping, ETag and If-Match, Idempotency-Key."""

from __future__ import annotations

import re
from typing import Any, cast

from django.contrib.auth.models import User
from django.db import models
from django.http import Http404
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import serializers, viewsets
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.parsers import FormParser, MultiPartParser
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response

from planner.api.core import idempotency
from planner.api.core.etags import ANY, etag_of, known_etags, names, tags_in, version_tag, with_etag
from planner.api.core.parsers import ShallowJSONParser
from planner.api.core.storable import unstorable
from planner.errors import StaleVersion
from planner.models import ApiToken, IdempotencyRecord, Job
from planner.selectors.access import rights

CSRF_FIELD = "csrfmiddlewaretoken"
VERSION_TAG = re.compile(r'"(0|[1-9][0-9]{0,18})"')


class PreconditionRequired(APIException):
    status_code = 428
    default_code = "precondition-required"
    default_detail = "Send If-Match with the ETag that you read, so that nobody's change is lost."


class ConsoleViewSet(viewsets.GenericViewSet[Any]):
    """Base of every viewset. `fleet_path` is the ORM path from the model to its fleet."""

    fleet_path = "fleet"
    parser_classes = [ShallowJSONParser, FormParser, MultiPartParser]
    scopes: dict[str, str] = {}
    # Fields of an answer that are shown once: a repeat under the same Idempotency-Key comes without them.
    secret_fields: tuple[str, ...] = ()
    _record: IdempotencyRecord | None = None

    def get_queryset(self) -> models.QuerySet[Any]:
        """Rows of the token's fleet only, where it has one; and of the fleets that the person behind it may see."""
        queryset = super().get_queryset()
        token = self.request.auth
        if not self.fleet_path:
            return queryset
        if isinstance(token, ApiToken) and token.fleet_id is not None:
            queryset = queryset.filter(**{self.fleet_path: token.fleet_id})
        if not rights.sees_all(self.request.user):
            queryset = queryset.filter(**{f"{self.fleet_path}__in": rights.visible_fleets(self.request.user)})
        return queryset

    @property
    def person(self) -> User:
        """Who acts: permission let nobody else in."""
        return cast(User, self.request.user)

    # --- ETag ---------------------------------------------------------------------------------------
    def expected_version(self, row: Any) -> int | None:
        """The version that If-Match asks for; None for `*`, which asks for none; 428 without the header.

        Of several tags it is that of the row as it was read, which the service checks again under the lock.
        """
        header = self.request.headers.get("If-Match", "").strip()
        if not header:
            raise PreconditionRequired
        tags = tags_in(header)
        if tags == [ANY]:
            return None
        if names(tags, version_tag(row.version)):
            return int(row.version)
        versions = [found[1] for tag in tags if (found := VERSION_TAG.fullmatch(tag))]
        if not versions:
            raise StaleVersion(f"{header[:80]} is not an ETag of this resource.")
        return int(versions[0])

    def answer(self, row: Any, status: int = 200, **headers: str) -> Response:
        """The row, serialised, with its ETag."""
        # The stubs know neither that every viewset here names a queryset nor that it is no manager.
        row = self.queryset.all().get(pk=row.pk)  # type: ignore[union-attr,arg-type]
        response = Response(self.get_serializer(row).data, status=status, headers=headers)
        return with_etag(response, row)

    def accept(self, serializer: type[serializers.Serializer[Any]], *, partial: bool = False) -> dict[str, Any]:
        """The request's body as the serializer accepts it. A token of one fleet names no other.

        `partial` takes what was sent and nothing else: without it a form that lacks a box means an empty box.
        """
        accepted = serializer(data=self.request.data, partial=partial, context={"request": self.request})
        accepted.is_valid(raise_exception=True)
        # A misspelt option that is passed over is a plan that nobody ordered. Forms write nested names (`a.b`, `a[0]`).
        sent = {re.split(r"[.\[]", name, maxsplit=1)[0] for name in self.request.data}
        if unknown := sent - set(accepted.fields) - {CSRF_FIELD}:
            known = ", ".join(accepted.fields) or "none"
            raise ValidationError(dict.fromkeys(sorted(unknown), f"There is no such field here; known: {known}."))
        data = dict(accepted.validated_data)
        for row in data.values():
            if isinstance(row, models.Model):
                self.check_object_permissions(self.request, row)
        return data

    # --- From the request to the answer ---------------------------------------------------------------
    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """After authentication and permission: refuse what cannot be stored, answer a repeated POST."""
        super().initial(request, *args, **kwargs)
        if unstorable(kwargs):
            raise Http404
        faults = unstorable(dict(request.query_params.lists()))
        if request.method not in SAFE_METHODS and not faults:
            data: Any = request.data
            faults = unstorable(dict(data.lists()) if hasattr(data, "lists") else data)
        if faults:
            raise ValidationError(faults)
        key = request.headers.get("Idempotency-Key", "")
        if request.method == "POST" and key and self.takes_keys():
            self._record = idempotency.claim(request, key)

    def takes_keys(self) -> bool:
        """Whether a repeated POST under an Idempotency-Key is answered as the first was."""
        return True

    def handle_exception(self, exc: Exception) -> Response:
        """A known answer is an answer."""
        if isinstance(exc, idempotency.Answered):
            return exc.response
        try:
            return super().handle_exception(exc)
        except Exception:
            if self._record is not None:
                self._record.delete()
            raise

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Keep the answer for a repeated POST, and no file that was sent."""
        response = super().finalize_response(request, response, *args, **kwargs)
        close_uploads(request)
        if self._record is not None and isinstance(response, Response):
            idempotency.keep(self._record, response, secrets=self.secret_fields)
        return response


def close_uploads(request: Request) -> None:
    """Close the temporary files of an upload, also of one that broke off or was refused before it was whole.

    Django closes those of a form that was read to its end, with the response; of any other the file that was being
    written stays open until it is collected.
    """
    sent = request._request
    for handler in getattr(sent, "_upload_handlers", []):  # not the property, which makes them
        if (file := getattr(handler, "file", None)) is not None:
            file.close()
    for _, files in sent._files.lists() if hasattr(sent, "_files") else ():
        for file in files:
            file.close()


class ReadViewSet(ConsoleViewSet):
    """List and retrieve; a versioned row carries its ETag and answers If-None-Match with 304."""

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """A page of rows, newest first."""
        self._refuse_unknown_filters(request)
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        return self.get_paginated_response(self.get_serializer(page, many=True).data)

    def _refuse_unknown_filters(self, request: Request) -> None:
        """A misspelt filter would answer with everything."""
        filters = DjangoFilterBackend().get_filterset_class(self, self.get_queryset())
        known = {*(filters.base_filters if filters else ()), "cursor", "page_size", "format"}
        if unknown := set(request.query_params) - known:
            names = ", ".join(sorted(known))
            raise ValidationError(dict.fromkeys(sorted(unknown), f"There is no such filter here; known: {names}."))

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One row."""
        row = self.get_object()
        tag = etag_of(row)
        if tag and names(known_etags(request), tag):
            return Response(status=304, headers={"ETag": tag})
        return with_etag(Response(self.get_serializer(row).data), row)


def accepted(request: Request, job: Job, **more: Any) -> Response:
    """202 with the job's address: what was asked for goes on in the background."""
    url = request.build_absolute_uri(f"/api/v1/jobs/{job.pk}/")
    return Response({"job": job.pk, "job_url": url, **more}, status=202, headers={"Location": url})
