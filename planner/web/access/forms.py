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
    """Django's form, which also refuses a name that is too long for the lockout table."""

    def clean_username(self) -> str:
        """The name, of at most 150 characters."""
        name: str = self.cleaned_data["username"]
        if len(name) > 150:
            raise ValidationError("The name is too long. Names have at most 150 characters.")
        return name


class TokenForm(Styled):
    """A new API token."""

    name = forms.CharField(max_length=120, help_text="Purpose of the token.")
    scopes = forms.MultipleChoiceField(
        choices=[
            (ApiToken.Scope.READ, "read: read everything"),
            (ApiToken.Scope.INGEST, "ingest: import workloads, report telemetry of fleets that you operate"),
            (ApiToken.Scope.PLAN, "plan: order plans and replays"),
            (ApiToken.Scope.DEPLOY, "deploy: change fleets, destinations and rollouts, fall back"),
            (ApiToken.Scope.ROUTE, "route: read routing tables"),
        ],
        widget=forms.CheckboxSelectMultiple,
        help_text="A token never has more rights than your account, and it cannot approve.",
    )
    fleet = forms.ModelChoiceField(
        queryset=Fleet.objects.all(), required=False, empty_label="all fleets", help_text="One fleet, or all fleets."
    )
    allowed_networks = forms.CharField(
        required=False,
        max_length=2_000,
        label="Allowed networks",
        help_text="Such as 10.0.0.0/8, 2001:db8::/32. Empty: any address.",
    )
    days = forms.IntegerField(initial=90, min_value=1, max_value=3650, label="Validity, days")

    def __init__(self, *args: Any, fleets: QuerySet[Fleet], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["fleet"].queryset = fleets  # type: ignore[attr-defined]  # a choice of rows

    def clean_allowed_networks(self) -> list[str]:
        """The networks as a list."""
        return self.cleaned_data["allowed_networks"].replace(",", " ").split()

    def expires_at(self, now: dt.datetime) -> dt.datetime:
        """The end of its validity."""
        return now + dt.timedelta(days=self.cleaned_data["days"])


class AccountForm(Styled):
    """A new account without roles."""

    username = forms.CharField(max_length=150)
    email = forms.EmailField(
        required=False, help_text="Used to detect two accounts of one person: approvals must come from a second person."
    )


class BreakGlassForm(Styled):
    """The reason for break-glass."""

    reason = forms.CharField(
        max_length=4_000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="What happened. Another person reviews it.",
    )


class PasswordForm(PasswordChangeForm):
    """Django's form with the classes of the style sheet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs["class"] = "form-control"
