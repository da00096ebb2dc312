"""Forms of fleets, destinations and policies. Business rules live in the services."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from planner.errors import Invalid
from planner.services.fleets.destination_rules import NewDestination, speed_of
from planner.services.fleets.engines import profile_names
from planner.web.core.forms import NumberList, Styled
from planner.web.fleets.destination_lines import DESTINATIONS_HELP, destination_lines


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
