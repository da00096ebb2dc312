"""The inbox of the signed-in user."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from planner.selectors.reviews.inbox import waiting_for_me
from planner.web.core.permissions import fragment
from planner.web.core.view_helpers import person


@require_GET
@login_required
def inbox(request: HttpRequest) -> HttpResponse:
    """Requested approvals, held canaries, fleets out of range."""
    return render(request, "reviews/inbox.html", {"waiting": waiting_for_me(person(request))})


@require_GET
@fragment
def count(request: HttpRequest) -> HttpResponse:
    """Number of open items for the menu; fetched after the page, so that no page waits for it."""
    return render(request, "reviews/inbox_count.html", {"count": len(waiting_for_me(person(request)))})
