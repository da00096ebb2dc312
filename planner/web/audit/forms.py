"""Forms of the audit trail. Business rules live in the services."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet

from planner.models import Fleet
from planner.services.audit.events import ACTIONS
from planner.web.core.forms import Styled


class AuditFilterForm(Styled):
    """Filters of the audit trail."""

    fleet = forms.ModelChoiceField(
        queryset=Fleet.objects.all(), to_field_name="slug", required=False, empty_label="all fleets"
    )
    action = forms.ChoiceField(required=False, choices=[("", "all actions"), *ACTIONS.items()])
    actor = forms.CharField(required=False, max_length=150)
    since = forms.DateField(required=False, label="From", widget=forms.DateInput(attrs={"type": "date"}))
    until = forms.DateField(required=False, label="Until", widget=forms.DateInput(attrs={"type": "date"}))
    before = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, fleets: QuerySet[Fleet], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["fleet"].queryset = fleets  # type: ignore[attr-defined]  # a choice of rows


class MomentForm(Styled):
    """A time in UTC."""

    at = forms.DateTimeField(
        required=False,
        label="Time (UTC)",
        input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"],
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M:%S"),
    )
    before = forms.IntegerField(required=False, min_value=0, max_value=2**62, widget=forms.HiddenInput)
