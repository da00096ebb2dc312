"""Forms of calibrations: record, import, simulate and fit."""

from __future__ import annotations

from typing import Any

from django import forms

from planner.models import Fleet, Workload
from planner.services.calibrations.fits import MAX_NAME_CHARS
from planner.simulation.knee import KNEES
from planner.web.core.forms import NumberList, Styled

MARGIN_HELP = "W = warm prefixes kept × margin. The checklist requires a margin below 1."


class KneeFields(Styled):
    """The method that finds the knee of a sweep."""

    knee = forms.ChoiceField(
        label="Method of the knee", choices=[(name, f"{name}: {what}") for name, what in KNEES.items()]
    )
    knee_factor = forms.FloatField(
        initial=2.0,
        label="Factor on p99 at the lowest load",
        help_text="factor: the limit of p99. chord: the start of the steep rise.",
    )
    slo_s = forms.FloatField(
        required=False, label="Limit, s", help_text="Method slo only. Empty: the SLO of the fleet."
    )


class CalibrationForm(Styled):
    """Figures measured on one destination of the real engine."""

    q_cap = forms.FloatField(
        label="q_cap, requests/s", help_text="Load of one destination at the knee of its p99 latency."
    )
    q_cap_censored = forms.ChoiceField(
        required=False,
        label="Position of the knee",
        choices=[
            ("", "Between two loads of the sweep"),
            ("left", "Below the lowest load (left-censored)"),
            ("right", "Above the highest load (right-censored)"),
        ],
    )
    slots_measured = forms.IntegerField(
        min_value=0, label="Warm prefixes kept", help_text="On one destination, with cold traffic."
    )
    margin = forms.FloatField(initial=0.8, help_text=MARGIN_HELP)
    knee_method = forms.CharField(max_length=120, initial="stated by the operator", label="Method of the knee")
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
        help_text="Leave empty if the file has trials of W.",
    )
    keep_share = forms.FloatField(
        initial=0.95,
        label="Minimum kept share",
        help_text="Trials of W: a prefix count is kept if at least this share of warm tokens stays cached.",
    )
    margin = forms.FloatField(initial=0.8, help_text=MARGIN_HELP)
    strict = forms.BooleanField(required=False, help_text="Refuse the file instead of repairing it.")
    note = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}))
    field_order = ("file", "slots_measured", "margin", "keep_share", "knee", "knee_factor", "slo_s", "strict", "note")


class SimulateForm(KneeFields):
    """A calibration on one simulated replica, with the requests of a workload."""

    workload = forms.ModelChoiceField(
        queryset=Workload.objects.none(), empty_label=None, help_text="The sweep uses the share of one destination."
    )
    margin = forms.FloatField(initial=0.8, help_text=MARGIN_HELP)
    loads = NumberList(
        required=False,
        label="Loads, requests/s",
        help_text="Loads of one destination. Empty: 10% to 110% of the load that saturates it.",
    )
    field_order = ("workload", "margin", "loads", "knee", "knee_factor", "slo_s")

    def __init__(self, *args: Any, fleet: Fleet, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["workload"].queryset = fleet.workloads.all()  # type: ignore[attr-defined]  # a choice


class FitForm(Styled):
    """Engine constants fitted to the points of a measured calibration."""

    name = forms.CharField(max_length=MAX_NAME_CHARS, label="Name of the new serving profile")
    workload = forms.ModelChoiceField(
        queryset=Workload.objects.none(), empty_label=None, help_text="The workload whose requests the sweep sent."
    )

    def __init__(self, *args: Any, fleet: Fleet, method: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if method == "iterations":
            del self.fields["workload"]  # the points hold all that the fit needs
        else:
            self.fields["workload"].queryset = fleet.workloads.all()  # type: ignore[attr-defined]  # a choice
