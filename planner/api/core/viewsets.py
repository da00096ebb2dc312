"""Base classes of the endpoints: fleet scoping, ETag and If-Match, Idempotency-Key."""

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
    default_detail = "The header If-Match is missing. Send the ETag of your last read, so that no change is lost."


class ConsoleViewSet(viewsets.GenericViewSet[Any]):
    """Base of every viewset. `fleet_path` is the ORM path from the model to its fleet."""

    fleet_path = "fleet"
    parser_classes = [ShallowJSONParser, FormParser, MultiPartParser]
    scopes: dict[str, str] = {}
    # Fields that only the first response has; a repeat with the same Idempotency-Key omits them.
    secret_fields: tuple[str, ...] = ()
    _record: IdempotencyRecord | None = None

    def get_queryset(self) -> models.QuerySet[Any]:
        """Rows of the fleets that the user may see; with a token of one fleet, of this fleet only."""
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
        """The signed-in user; the permission check ensures that there is one."""
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
        """The serialized row with its ETag.

        Parameters
        ----------
        row
            The row that was made or changed.
        status
            HTTP status.
        **headers
            Further headers.

        Returns
        -------
        Response
            The response.
        """
        # The type stubs do not know that `queryset` is set and is no manager.
        row = self.queryset.all().get(pk=row.pk)  # type: ignore[union-attr,arg-type]
        response = Response(self.get_serializer(row).data, status=status, headers=headers)
        return with_etag(response, row)

    def accept(self, serializer: type[serializers.Serializer[Any]], *, partial: bool = False) -> dict[str, Any]:
        """The validated body of the request.

        A token of one fleet may name this fleet only.

        Parameters
        ----------
        serializer
            The serializer of the input.
        partial
            Accept only the fields that were sent. Otherwise a form without a checkbox means an unchecked box.

        Returns
        -------
        dict[str, Any]
            The validated values.

        Raises
        ------
        ValidationError
            When a value is invalid or a field is unknown.
        """
        accepted = serializer(data=self.request.data, partial=partial, context={"request": self.request})
        accepted.is_valid(raise_exception=True)
        # An ignored misspelt option would order another plan. Forms write nested names (`a.b`, `a[0]`).
        sent = {re.split(r"[.\[]", name, maxsplit=1)[0] for name in self.request.data}
        if unknown := sent - set(accepted.fields) - {CSRF_FIELD}:
            known = ", ".join(accepted.fields) or "none"
            raise ValidationError(dict.fromkeys(sorted(unknown), f"Unknown field; known: {known}."))
        data = dict(accepted.validated_data)
        for row in data.values():
            if isinstance(row, models.Model):
                self.check_object_permissions(self.request, row)
        return data

    # --- From the request to the response ---------------------------------------------------------------
    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """After authentication and permission: refuse values that cannot be stored, answer a repeated POST."""
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
        """Whether a repeated POST with the same Idempotency-Key gets the first response."""
        return True

    def handle_exception(self, exc: Exception) -> Response:
        """Return the stored response of a repeat; free the key after an unexpected error."""
        if isinstance(exc, idempotency.Answered):
            return exc.response
        try:
            return super().handle_exception(exc)
        except Exception:
            if self._record is not None:
                self._record.delete()
            raise

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Store the response for a repeated POST, and close uploaded files."""
        response = super().finalize_response(request, response, *args, **kwargs)
        close_uploads(request)
        if self._record is not None and isinstance(response, Response):
            idempotency.keep(self._record, response, secrets=self.secret_fields)
        return response


def close_uploads(request: Request) -> None:
    """Close the temporary files of an upload, also of an incomplete or refused one.

    Django closes the files of a complete form with the response. The unfinished file of an incomplete form stays
    open until it is garbage-collected.
    """
    sent = request._request
    for handler in getattr(sent, "_upload_handlers", []):  # the property would create them
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
        """Refuse unknown filters: a misspelt filter would return all rows."""
        filters = DjangoFilterBackend().get_filterset_class(self, self.get_queryset())
        known = {*(filters.base_filters if filters else ()), "cursor", "page_size", "format"}
        if unknown := set(request.query_params) - known:
            names = ", ".join(sorted(known))
            raise ValidationError(dict.fromkeys(sorted(unknown), f"Unknown filter; known: {names}."))

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One row."""
        row = self.get_object()
        tag = etag_of(row)
        if tag and names(known_etags(request), tag):
            return Response(status=304, headers={"ETag": tag})
        return with_etag(Response(self.get_serializer(row).data), row)


def accepted(request: Request, job: Job, **more: Any) -> Response:
    """Answer 202 with the address of a job, which continues in the background.

    Parameters
    ----------
    request
        The request.
    job
        The job.
    **more
        Further values of the body.

    Returns
    -------
    Response
        The response.
    """
    url = request.build_absolute_uri(f"/api/v1/jobs/{job.pk}/")
    return Response({"job": job.pk, "job_url": url, **more}, status=202, headers={"Location": url})
