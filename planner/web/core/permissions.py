"""Access rules of page views."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from planner.errors import NotAllowed
from planner.models import Fleet
from planner.selectors.access import rights


def fragment(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A part of a page that the page polls. After a sign-out the whole page goes to the sign-in."""

    @wraps(view)
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.user.is_authenticated:
            return view(request, *args, **kwargs)
        if request.headers.get("HX-Request"):
            return HttpResponse(headers={"HX-Refresh": "true"})
        return redirect_to_login(request.get_full_path())

    return inner


def needs(right: str) -> Callable[[Callable[..., HttpResponse]], Callable[..., HttpResponse]]:
    """Answer 403 with the reason to a user without the right, before the form is shown."""

    def wrap(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        @wraps(view)
        def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            try:
                fleet = Fleet.objects.filter(slug=kwargs["slug"]).first() if "slug" in kwargs else None
                rights.require(request.user, right, fleet)  # type: ignore[arg-type]
            except NotAllowed as refusal:
                raise PermissionDenied(refusal.message) from refusal
            return view(request, *args, **kwargs)

        return inner

    return wrap
