"""Forms of sign-in, accounts, tokens and break-glass. Business rules live in the services."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.core.exceptions import ValidationError
from django.db.models import QuerySet

from planner.models import ApiToken, Fleet
from planner.web.core.forms import Styled


class SignInForm(AuthenticationForm):
    """Django's, where a name longer than any account's is refused before the lockout tries to record it."""

    def clean_username(self) -> str:
        """A name that may exist."""
        name: str = self.cleaned_data["username"]
        if len(name) > 150:
            raise ValidationError("Names have 150 characters at most.")
        return name


class TokenForm(Styled):
    """A token of one's own."""

    name = forms.CharField(max_length=120, help_text="What it is for.")
    scopes = forms.MultipleChoiceField(
        choices=[
            (ApiToken.Scope.READ, "read: look at everything"),
            (ApiToken.Scope.INGEST, "ingest: import workloads; report telemetry of fleets that you operate"),
            (ApiToken.Scope.PLAN, "plan: order plans and replays"),
            (ApiToken.Scope.DEPLOY, "deploy: fleets, destinations, rollouts and fall back"),
            (ApiToken.Scope.ROUTE, "route: read routing tables"),
        ],
        widget=forms.CheckboxSelectMultiple,
        help_text="It never does more than you may do yourself, and it never approves.",
    )
    fleet = forms.ModelChoiceField(
        queryset=Fleet.objects.all(), required=False, empty_label="all fleets", help_text="One fleet only, or all."
    )
    allowed_networks = forms.CharField(
        required=False,
        max_length=2_000,
        label="Only from these networks",
        help_text="Such as 10.0.0.0/8, 2001:db8::/32. Left empty: from anywhere.",
    )
    days = forms.IntegerField(initial=90, min_value=1, max_value=3650, label="Valid for, days")

    def __init__(self, *args: Any, fleets: QuerySet[Fleet], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["fleet"].queryset = fleets  # type: ignore[attr-defined]  # a choice of rows

    def clean_allowed_networks(self) -> list[str]:
        """The networks, one by one."""
        return self.cleaned_data["allowed_networks"].replace(",", " ").split()

    def expires_at(self, now: dt.datetime) -> dt.datetime:
        """When it ends."""
        return now + dt.timedelta(days=self.cleaned_data["days"])


class AccountForm(Styled):
    """A new account, without any role yet."""

    username = forms.CharField(max_length=150)
    email = forms.EmailField(
        required=False, help_text="Shown where two accounts share one: approvals must come from another person."
    )


class BreakGlassForm(Styled):
    """Why the guards of a fleet are passed for an hour."""

    reason = forms.CharField(
        max_length=4_000, widget=forms.Textarea(attrs={"rows": 3}), help_text="What happened. Somebody else reviews it."
    )


class PasswordForm(PasswordChangeForm):
    """Django's, in the clothes of the console."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs["class"] = "form-control"
