"""What waits for the person who is signed in."""

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
    """Approvals asked for, rollouts held, fleets outside their range."""
    return render(request, "reviews/inbox.html", {"waiting": waiting_for_me(person(request))})


@require_GET
@fragment
def count(request: HttpRequest) -> HttpResponse:
    """How many things wait, for the menu; fetched after the page, so that no page waits for it."""
    return render(request, "reviews/inbox_count.html", {"count": len(waiting_for_me(person(request)))})
