"""Forms of webhooks and their deliveries. Business rules live in the services."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet

from planner.models import Fleet, Webhook
from planner.services.audit.events import ACTIONS
from planner.web.core.forms import Styled


class WebhookForm(Styled):
    """A new webhook."""

    name = forms.CharField(max_length=120)
    url = forms.CharField(
        max_length=500,
        label="Address",
        help_text="An https:// address. It must be public unless the settings permit private addresses.",
    )
    format = forms.ChoiceField(choices=Webhook.Format.choices)
    fleet = forms.ModelChoiceField(queryset=Fleet.objects.none(), required=False, empty_label="all fleets")
    actions = forms.MultipleChoiceField(
        choices=list(ACTIONS.items()),
        required=False,
        widget=forms.SelectMultiple(attrs={"size": 8}),
        help_text="No selection: all actions.",
    )

    def __init__(self, *args: Any, fleets: QuerySet[Fleet], everywhere: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        chosen: Any = self.fields["fleet"]
        chosen.queryset, chosen.required = fleets, not everywhere
        if not everywhere:
            chosen.empty_label = None
