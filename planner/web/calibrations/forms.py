"""Forms of calibrations: recorded, imported, simulated, and fitted to."""

from __future__ import annotations

from typing import Any

from django import forms

from planner.models import Fleet, Workload
from planner.services.calibrations.fits import MAX_NAME_CHARS
from planner.simulation.knee import KNEES
from planner.web.core.forms import NumberList, Styled

MARGIN_HELP = "W = warm prefixes kept × margin. The checklist wants it careful."


class KneeFields(Styled):
    """How the knee of a sweep is read."""

    knee = forms.ChoiceField(
        label="How the knee is read", choices=[(name, f"{name}: {what}") for name, what in KNEES.items()]
    )
    knee_factor = forms.FloatField(
        initial=2.0, label="Factor on p99 at the lowest load", help_text="factor: the bound. chord: p99 has taken off."
    )
    slo_s = forms.FloatField(
        required=False, label="Bound, seconds", help_text="Of the method slo; left empty, the fleet's SLO."
    )


class CalibrationForm(Styled):
    """Figures measured on one destination of the real engine."""

    q_cap = forms.FloatField(
        label="q_cap, requests/s", help_text="What one destination takes before its p99 tail takes off (the knee)."
    )
    q_cap_censored = forms.ChoiceField(
        required=False,
        label="Did the sweep bracket the knee?",
        choices=[
            ("", "Yes, it lies between two loads"),
            ("left", "No: every load was above it"),
            ("right", "No: every load was below it"),
        ],
    )
    slots_measured = forms.IntegerField(
        min_value=0, label="Warm prefixes kept", help_text="By one destination, under cold-tail traffic."
    )
    margin = forms.FloatField(initial=0.8, help_text=MARGIN_HELP)
    knee_method = forms.CharField(max_length=120, initial="stated by the operator", label="How the knee was found")
    note = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}))


class SweepForm(KneeFields):
    """A measured load sweep, as CSV."""

    file = forms.FileField(
        label="Sweep, CSV",
        help_text="Columns load_rps and p99_s; optionally p50_s, p95_s, ttft_p99_s, hit_rate, requests, busy_share, "
        "a mean iteration (prefill_tokens, decodes, context_tokens, iteration_s), and trials of W "
        "(prefixes, kept_share).",
    )
    slots_measured = forms.IntegerField(
        required=False,
        min_value=0,
        label="Warm prefixes kept",
        help_text="Leave it empty where the file has trials of W.",
    )
    keep_share = forms.FloatField(
        initial=0.95, label="What counts as kept", help_text="In trials of W: share of the warm tokens still cached."
    )
    margin = forms.FloatField(initial=0.8, help_text=MARGIN_HELP)
    strict = forms.BooleanField(required=False, help_text="Repair nothing: every repair becomes a refusal.")
    note = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}))
    field_order = ("file", "slots_measured", "margin", "keep_share", "knee", "knee_factor", "slo_s", "strict", "note")


class SimulateForm(KneeFields):
    """A calibration on one simulated replica, with the requests of a workload."""

    workload = forms.ModelChoiceField(
        queryset=Workload.objects.none(), empty_label=None, help_text="The sweep serves one destination's share of it."
    )
    margin = forms.FloatField(initial=0.8, help_text=MARGIN_HELP)
    loads = NumberList(
        required=False,
        label="Loads, requests/s",
        help_text="Of one destination. Left empty: 10% to 110% of what saturates it.",
    )
    field_order = ("workload", "margin", "loads", "knee", "knee_factor", "slo_s")

    def __init__(self, *args: Any, fleet: Fleet, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["workload"].queryset = fleet.workloads.all()  # type: ignore[attr-defined]  # a choice


class FitForm(Styled):
    """Engine constants fitted to the points of a measured calibration."""

    name = forms.CharField(max_length=MAX_NAME_CHARS, label="Name of the new serving profile")
    workload = forms.ModelChoiceField(
        queryset=Workload.objects.none(), empty_label=None, help_text="Whose requests were sent in the sweep."
    )

    def __init__(self, *args: Any, fleet: Fleet, method: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if method == "iterations":
            del self.fields["workload"]  # the points tell by themselves
        else:
            self.fields["workload"].queryset = fleet.workloads.all()  # type: ignore[attr-defined]  # a choice
