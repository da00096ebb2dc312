"""Forms: what a person may type. Rules that are about the business stand in the services, not here."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.core.exceptions import ValidationError
from django.db.models import QuerySet

from planner.errors import Invalid
from planner.ingest import FORMATS
from planner.models import ApiToken, Fleet, Webhook
from planner.services.audit.events import ACTIONS
from planner.services.fleets.destination_rules import NewDestination, speed_of
from planner.services.fleets.engines import profile_names
from planner.web.destination_lines import DESTINATIONS_HELP, destination_lines


class Styled(forms.Form):
    """A form whose controls carry the classes of the style sheet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            widget = field.widget
            if isinstance(widget, forms.CheckboxInput | forms.CheckboxSelectMultiple):
                widget.attrs.setdefault("class", "form-check-input")
            elif isinstance(widget, forms.Select):
                widget.attrs.setdefault("class", "form-select")
            elif not isinstance(widget, forms.HiddenInput):
                widget.attrs.setdefault("class", "form-control")
            if isinstance(field, forms.FloatField):
                widget.attrs["step"] = "any"
                widget.attrs["inputmode"] = "decimal"


class SignInForm(AuthenticationForm):
    """Django's, where a name longer than any account's is refused before the lockout tries to record it."""

    def clean_username(self) -> str:
        """A name that may exist."""
        name: str = self.cleaned_data["username"]
        if len(name) > 150:
            raise ValidationError("Names have 150 characters at most.")
        return name


class NumberList(forms.CharField):
    """Numbers separated by commas or blanks; empty is an empty list."""

    def __init__(self, *, whole: bool = False, **kwargs: Any) -> None:
        self.whole = whole
        super().__init__(**kwargs)

    def to_python(self, value: Any) -> Any:
        """Parse, naming the first text that is not a number."""
        if isinstance(value, list):
            return value
        numbers: list[float] = []
        for text in (value or "").replace(",", " ").split():
            try:
                if len(text) > 40:
                    raise ValueError
                found = int(text) if self.whole else float(text)
            except ValueError:
                kind = "a whole number" if self.whole else "a number"
                raise ValidationError(f"{text[:40]!r} is not {kind}.") from None
            if not math.isfinite(found):
                raise ValidationError(f"{text[:40]!r} is not a finite number.")
            numbers.append(found)
        return numbers


class ImportForm(Styled):
    """A file of measured rates or requests."""

    file = forms.FileField(help_text="Plain or gzip-compressed. It is read as a stream; prompt text is never needed.")
    name = forms.CharField(required=False, max_length=120, help_text="Left empty: the name of the file.")
    format = forms.ChoiceField(initial="auto", help_text="Automatic goes by the first line of the file.")
    key_depth = forms.IntegerField(
        initial=2,
        min_value=1,
        label="Key depth, blocks",
        help_text="Traces with prompt blocks: how many leading blocks make the routing key.",
    )
    block_tokens = forms.IntegerField(
        initial=512, min_value=1, label="Block length, tokens", help_text="Traces with prompt blocks only."
    )
    measured_at = forms.DateTimeField(
        required=False,
        label="Measured until (UTC)",
        help_text="End of the window that the rates were measured in. Left empty, the first checklist item stays open.",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
    )
    strict = forms.BooleanField(required=False, help_text="Repair nothing: every repair becomes a refusal.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        formats = [(name, f"{name}: {form.holds}") for name, form in FORMATS.items()]
        self.fields["format"].choices = [("auto", "Automatic"), *formats]  # type: ignore[attr-defined]  # a choice


class PolicyForm(Styled):
    """What the plans of a fleet are judged by."""

    slo_p99_s = forms.FloatField(label="SLO: p99 latency, seconds", initial=3.5)
    min_approvals = forms.IntegerField(label="Approvals needed", initial=1, max_value=20)
    max_rates_age_days = forms.IntegerField(label="Oldest rates, days", initial=7, min_value=0, max_value=3650)
    approval_days = forms.IntegerField(label="An approval holds, days", initial=14)
    min_loads = forms.IntegerField(label="Replayed loads, at least", initial=3)
    min_seeds = forms.IntegerField(label="Paired seeds, at least", initial=3)
    min_requests = forms.IntegerField(label="Measured requests a cell, at least", initial=1_000)
    max_imbalance = forms.FloatField(label="Highest planned max/mean load", initial=1.5)
    max_loss_imbalance = forms.FloatField(
        label="Highest max/mean after a loss", initial=2.0, help_text="Of any one destination."
    )
    canary_weights = NumberList(
        label="Canary steps, shares of keys",
        initial="0.01, 0.1, 0.5",
        help_text="Rising, between 0 and 1, such as 0.01, 0.1, 0.5.",
    )
    canary_holds_s = NumberList(
        label="Watched for, seconds",
        initial="300",
        help_text="How long each step is watched before the next: one number for all, or one for each.",
    )
    canary_warmup_s = forms.FloatField(
        label="Warm-up, seconds", initial=60, help_text="Left out at the start of each step: caches are cold then."
    )
    canary_min_requests = forms.IntegerField(
        label="Requests of each arm", initial=1_000, help_text="Fewer, and a step is not judged: it holds."
    )
    max_error_rate = forms.FloatField(label="Highest share of errors", initial=0.01)
    auto_advance = forms.BooleanField(
        required=False, label="Take a canary on by itself", help_text="When its step was held and passed."
    )
    auto_abort = forms.BooleanField(required=False, initial=True, label="Abort a canary whose step fails")
    auto_fall_back = forms.BooleanField(
        required=False, initial=True, label="Fall back when traffic leaves the validated range"
    )
    breaches_to_fall_back = forms.IntegerField(
        label="Checks outside in a row", initial=3, help_text="One a minute; after so many the fleet falls back."
    )
    cool_down_s = forms.FloatField(
        label="Cool-down, seconds", initial=1_800, help_text="After an automatic fallback no rollout starts so long."
    )
    telemetry_stale_s = forms.FloatField(label="Telemetry is silent after, seconds", initial=180)
    accept_simulated = forms.BooleanField(
        required=False,
        label="Accept simulated rates and calibrations",
        help_text="For samples and trials. A fleet with real traffic wants measured ones.",
    )
    expected_version = forms.IntegerField(required=False, widget=forms.HiddenInput)


class ServingForm(Styled):
    """How a fleet serves from now on."""

    engine_profile = forms.ChoiceField(help_text="Whatever was calibrated, replayed or approved before is stale then.")
    expected_version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["engine_profile"].choices = [(p, p) for p in profile_names()]  # type: ignore[attr-defined]  # a choice


class FleetForm(PolicyForm):
    """A new fleet."""

    slug = forms.CharField(max_length=60, help_text="Lower-case letters, digits, hyphens: it stands in addresses.")
    name = forms.CharField(max_length=120)
    description = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}))
    engine_profile = forms.ChoiceField(help_text="The engine that replays model.")
    destinations = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 6, "spellcheck": "false"}),
        help_text=DESTINATIONS_HELP,
    )
    field_order = ["slug", "name", "description", "engine_profile", "destinations"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["engine_profile"].choices = [(p, p) for p in profile_names()]  # type: ignore[attr-defined]  # a choice

    def clean_slug(self) -> str:
        """`new` is the address of this form."""
        slug: str = self.cleaned_data["slug"]
        if slug == "new":
            raise ValidationError("This word is taken by the address of the form itself.")
        return slug

    def clean_destinations(self) -> list[NewDestination]:
        """Name, URL and speed of each."""
        return destination_lines(self.cleaned_data["destinations"])


class AddDestinationsForm(Styled):
    """More destinations of a fleet."""

    destinations = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 6, "spellcheck": "false"}), help_text=DESTINATIONS_HELP
    )
    expected_version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def clean_destinations(self) -> list[NewDestination]:
        """Name, URL and speed of each."""
        return destination_lines(self.cleaned_data["destinations"])


class SpeedField(forms.FloatField):
    """A speed by the rule of the service; Django's own reading takes 1_0 for 10."""

    def to_python(self, value: Any) -> Any:
        """The speed."""
        try:
            return None if value in self.empty_values else speed_of(str(value).strip())
        except Invalid as fault:
            raise ValidationError(f"{fault.message[:1].upper()}{fault.message[1:]}.") from fault


class SpeedForm(Styled):
    """How fast a destination is."""

    weight = SpeedField(
        label="Speed",
        help_text="1 is the destination that q_cap was measured on; 2 takes twice its load. Approvals of plans that "
        "were made for another speed no longer count.",
    )
    expected_version = forms.IntegerField(required=False, widget=forms.HiddenInput)


class AuditFilterForm(Styled):
    """What to look for in the trail."""

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


class EmergencyForm(Styled):
    """Why the guards of a fleet are passed for an hour."""

    reason = forms.CharField(
        max_length=4_000, widget=forms.Textarea(attrs={"rows": 3}), help_text="What happened. Somebody else reviews it."
    )


class MomentForm(Styled):
    """A moment in the past, in UTC."""

    at = forms.DateTimeField(
        required=False,
        label="At (UTC)",
        input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"],
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M:%S"),
    )
    before = forms.IntegerField(required=False, min_value=0, max_value=2**62, widget=forms.HiddenInput)


class WebhookForm(Styled):
    """An address that is told what happens."""

    name = forms.CharField(max_length=120)
    url = forms.CharField(
        max_length=500, label="Address", help_text="https://, and public unless the console allows it."
    )
    format = forms.ChoiceField(choices=Webhook.Format.choices)
    fleet = forms.ModelChoiceField(queryset=Fleet.objects.none(), required=False, empty_label="all fleets")
    actions = forms.MultipleChoiceField(
        choices=list(ACTIONS.items()),
        required=False,
        widget=forms.SelectMultiple(attrs={"size": 8}),
        help_text="None chosen: all of them.",
    )

    def __init__(self, *args: Any, fleets: QuerySet[Fleet], everywhere: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        chosen: Any = self.fields["fleet"]
        chosen.queryset, chosen.required = fleets, not everywhere
        if not everywhere:
            chosen.empty_label = None


class PasswordForm(PasswordChangeForm):
    """Django's, in the clothes of the console."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs["class"] = "form-control"
