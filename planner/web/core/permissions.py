"""Pages that only some people have a use for."""

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
    """A part of a page that the page fetches again: whoever is signed out meanwhile is sent to sign in as a whole."""

    @wraps(view)
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.user.is_authenticated:
            return view(request, *args, **kwargs)
        if request.headers.get("HX-Request"):
            return HttpResponse(headers={"HX-Refresh": "true"})
        return redirect_to_login(request.get_full_path())

    return inner


def needs(right: str) -> Callable[[Callable[..., HttpResponse]], Callable[..., HttpResponse]]:
    """Answer 403 with the reason to those without the right, before they fill in a form for nothing."""

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
