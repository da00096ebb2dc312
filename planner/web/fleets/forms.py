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
    """The policy of a fleet."""

    slo_p99_s = forms.FloatField(label="SLO of p99 latency, s", initial=3.5)
    min_approvals = forms.IntegerField(label="Approvals needed", initial=1, max_value=20)
    max_rates_age_days = forms.IntegerField(label="Maximum age of rates, days", initial=7, min_value=0, max_value=3650)
    approval_days = forms.IntegerField(label="Validity of an approval, days", initial=14)
    min_loads = forms.IntegerField(label="Minimum replayed loads", initial=3)
    min_seeds = forms.IntegerField(label="Minimum paired seeds", initial=3)
    min_requests = forms.IntegerField(label="Minimum measured requests per cell", initial=1_000)
    max_imbalance = forms.FloatField(label="Maximum planned max/mean load", initial=1.5)
    max_loss_imbalance = forms.FloatField(
        label="Maximum max/mean after a loss", initial=2.0, help_text="After the loss of any one destination."
    )
    canary_weights = NumberList(
        label="Canary steps, shares of keys",
        initial="0.01, 0.1, 0.5",
        help_text="Increasing shares between 0 and 1, such as 0.01, 0.1, 0.5.",
    )
    canary_holds_s = NumberList(
        label="Hold of each step, s",
        initial="300",
        help_text="Time before the next step: one number for all steps, or one number per step.",
    )
    canary_warmup_s = forms.FloatField(
        label="Warm-up, s",
        initial=60,
        help_text="Telemetry at the start of each step that is not judged, because caches are cold.",
    )
    canary_min_requests = forms.IntegerField(label="Minimum requests per arm before a step is judged", initial=1_000)
    max_error_rate = forms.FloatField(label="Maximum share of failed requests", initial=0.01)
    auto_advance = forms.BooleanField(
        required=False, label="Advance automatically", help_text="After the hold, if the analysis passes."
    )
    auto_abort = forms.BooleanField(required=False, initial=True, label="Abort automatically when a step fails")
    auto_fall_back = forms.BooleanField(
        required=False, initial=True, label="Fall back automatically when traffic is out of range"
    )
    breaches_to_fall_back = forms.IntegerField(
        label="Consecutive checks out of range before fallback", initial=3, help_text="The monitor checks every minute."
    )
    cool_down_s = forms.FloatField(
        label="Cool-down, s", initial=1_800, help_text="Time without rollouts after an automatic fallback."
    )
    telemetry_stale_s = forms.FloatField(label="Telemetry timeout, s", initial=180)
    accept_simulated = forms.BooleanField(
        required=False,
        label="Accept simulated rates and calibrations",
        help_text="For samples and trials. A fleet with real traffic needs measured inputs.",
    )
    expected_version = forms.IntegerField(required=False, widget=forms.HiddenInput)


class ServingForm(Styled):
    """The serving profile of a fleet."""

    engine_profile = forms.ChoiceField(
        help_text="Calibrations, replays and approvals made before the change become stale."
    )
    expected_version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["engine_profile"].choices = [(p, p) for p in profile_names()]  # type: ignore[attr-defined]  # a choice


class FleetForm(PolicyForm):
    """A new fleet."""

    slug = forms.CharField(max_length=60, help_text="Lower-case letters, digits and hyphens. It is part of addresses.")
    name = forms.CharField(max_length=120)
    description = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}))
    engine_profile = forms.ChoiceField(help_text="The engine that replays simulate.")
    destinations = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 6, "spellcheck": "false"}),
        help_text=DESTINATIONS_HELP,
    )
    field_order = ["slug", "name", "description", "engine_profile", "destinations"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["engine_profile"].choices = [(p, p) for p in profile_names()]  # type: ignore[attr-defined]  # a choice

    def clean_slug(self) -> str:
        """The slug; `new` is reserved for the address of this form."""
        slug: str = self.cleaned_data["slug"]
        if slug == "new":
            raise ValidationError("The name new is reserved. Choose another name.")
        return slug

    def clean_destinations(self) -> list[NewDestination]:
        """Name, URL and speed of each destination."""
        return destination_lines(self.cleaned_data["destinations"])


class AddDestinationsForm(Styled):
    """New destinations of a fleet."""

    destinations = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 6, "spellcheck": "false"}), help_text=DESTINATIONS_HELP
    )
    expected_version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def clean_destinations(self) -> list[NewDestination]:
        """Name, URL and speed of each destination."""
        return destination_lines(self.cleaned_data["destinations"])


class SpeedField(forms.FloatField):
    """A speed, parsed by the service. Django's own parser reads 1_0 as 10."""

    def to_python(self, value: Any) -> Any:
        """The speed."""
        try:
            return None if value in self.empty_values else speed_of(str(value).strip())
        except Invalid as fault:
            raise ValidationError(f"{fault.message[:1].upper()}{fault.message[1:]}.") from fault


class SpeedForm(Styled):
    """The speed of a destination."""

    weight = SpeedField(
        label="Speed",
        help_text="1 is the destination on which q_cap was measured; 2 takes twice its load. Approvals of plans for "
        "another speed become invalid.",
    )
    expected_version = forms.IntegerField(required=False, widget=forms.HiddenInput)
