"""Pages of webhooks and their deliveries."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from planner.errors import NotAllowed, Refused
from planner.models import Webhook, WebhookDelivery
from planner.selectors.access import rights
from planner.services.webhooks import webhooks as service
from planner.web.core.view_helpers import act, action, person, sentence
from planner.web.webhooks.forms import WebhookForm

ROWS = 100


def _visible(request: HttpRequest) -> QuerySet[Webhook]:
    return service.managed_webhooks(person(request)).order_by("name")


@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def webhooks(request: HttpRequest) -> HttpResponse:
    """List webhooks and deliveries, and create a webhook. The secret is only in the response to the form."""
    managed = rights.fleets_with(person(request), rights.MANAGE)
    everywhere = rights.may(person(request), rights.MANAGE)
    form = WebhookForm(request.POST or None, fleets=managed, everywhere=everywhere)
    made: dict[str, Any] = {}
    status = 200
    if request.method == "POST":
        status = 400
        if form.is_valid():
            try:
                row, secret = service.create_webhook(acting_user=person(request), **form.cleaned_data)
                made, status = {"made": row, "secret": secret}, 201
                form = WebhookForm(fleets=managed, everywhere=everywhere)
            except (NotAllowed, Refused) as refusal:
                form.add_error(refusal.field if refusal.field in form.fields else None, sentence(refusal.message))
                status = refusal.status
    shown = _visible(request)
    deliveries = WebhookDelivery.objects.filter(webhook__in=shown).select_related("webhook", "event").order_by("-id")
    context = {
        "form": form if managed.exists() or everywhere else None,
        "webhooks": shown,
        "deliveries": deliveries[:ROWS],
        **made,
    }
    return render(request, "webhooks/webhooks.html", context, status=status)


@action
def switch(request: HttpRequest, pk: int) -> HttpResponse:
    """Enable or disable a webhook."""
    row = get_object_or_404(_visible(request), pk=pk)
    enabled = request.POST.get("enabled") == "1"

    def call() -> str:
        service.change_webhook(acting_user=person(request), webhook=row, enabled=enabled)
        return f"{row} is {'enabled' if enabled else 'disabled'}."

    return act(request, call, back=reverse("webhooks"))


@action
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove a webhook."""
    row = get_object_or_404(_visible(request), pk=pk)

    def call() -> str:
        service.delete_webhook(acting_user=person(request), webhook=row)
        return f"{row} is removed."

    return act(request, call, back=reverse("webhooks"))


@action
def send_again(request: HttpRequest, pk: int) -> HttpResponse:
    """Send a delivery once more."""
    row = get_object_or_404(WebhookDelivery.objects.filter(webhook__in=_visible(request)), pk=pk)

    def call() -> str:
        service.send_again(acting_user=person(request), delivery=row)
        return "The delivery is sent again within seconds."

    return act(request, call, back=reverse("webhooks"))
