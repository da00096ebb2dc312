"""The form that orders a plan: basic, replan and advanced fields."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from planner.models import Calibration, Fleet, Plan, Rollout, Workload
from planner.services.plans.options import DEFAULT_IMBALANCE_FACTOR
from planner.web.core.forms import NumberList, Styled

SCRATCH = "from scratch"
ADMISSION_NAMES = [
    ("top_rate", "By rate: busiest keys first (Algorithm 1)"),
    ("density", "By density: largest prefill saving per slot or token first"),
    ("exact", "Exact: set of keys with the largest saving"),
]


class TenantSlots(forms.CharField):
    """One tenant and its slots per line, as {tenant: slots}; empty is None."""

    widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "placeholder": "acme: 40"})

    def to_python(self, value: Any) -> Any:
        """Parse the lines; an error names its line. The last colon ends the name, so a name may contain colons."""
        found: dict[str, int] = {}
        for at, line in enumerate((value or "").splitlines(), start=1):
            if not line.strip():
                continue
            name, colon, text = line.rpartition(":")
            name, text = name.strip(), text.strip()
            if not colon:
                raise ValidationError(f"Line {at}: write a tenant, a colon and its slots, such as acme: 40.")
            if not (text.isascii() and text.isdigit() and len(text) <= 10):
                raise ValidationError(f"Line {at}: {text[:40]!r} is not a whole number of slots.")
            if name in found:
                raise ValidationError(f"Line {at}: {name[:80]!r} is listed twice. List each tenant once.")
            found[name] = int(text)
        return found or None


class PlanChoice(forms.ModelChoiceField):
    """Plans by number and state."""

    def label_from_instance(self, obj: Plan) -> str:
        """Text of a plan in the list."""
        return f"{obj}: {obj.workload}, {obj.get_state_display().lower()}"


class WorkloadChoice(forms.ModelChoiceField):
    """Workloads by name, rate and date, so that similar workloads can be distinguished."""

    def label_from_instance(self, obj: Workload) -> str:
        """Text of a workload in the list."""
        return f"{obj.name}, {obj.total_rps:g} requests/s, measured {obj.measured_at:%Y-%m-%d %H:%M}"


class CalibrationChoice(forms.ModelChoiceField):
    """Calibrations by figures, censoring and date."""

    def label_from_instance(self, obj: Calibration) -> str:
        """Text of a calibration in the list."""
        censored = f", {obj.q_cap_censored}-censored" if obj.q_cap_censored else ""
        return f"{obj}{censored}, recorded {obj.created_at:%Y-%m-%d %H:%M}"


class PlanForm(Styled):
    """The order of a plan."""

    workload = WorkloadChoice(queryset=Workload.objects.none(), empty_label=None)
    calibration = CalibrationChoice(queryset=Calibration.objects.none(), empty_label=None)
    incumbent = PlanChoice(
        queryset=Plan.objects.none(),
        required=False,
        empty_label=SCRATCH,
        label="Incumbent",
        help_text="A replan keeps the warm keys of this plan on their destinations where the balance allows.",
    )
    max_imbalance_factor = forms.FloatField(
        required=False,
        label="Maximum imbalance factor",
        help_text="Limit of max/mean relative to a new plan: 1.02 permits 2% more imbalance. "
        f"Empty: {DEFAULT_IMBALANCE_FACTOR:g}.",
        widget=forms.NumberInput(attrs={"placeholder": f"{DEFAULT_IMBALANCE_FACTOR:g}"}),
    )
    max_moved_share = forms.FloatField(
        required=False,
        label="Maximum moved share of the warm rate",
        help_text="A share from 0 to 1, such as 0.1. Empty: no limit. Keys of a removed destination move regardless "
        "of the limit.",
    )
    replay_after_build = forms.BooleanField(
        required=False, initial=True, label="Replay against Flat-LB after the build"
    )
    loads_rps = NumberList(
        required=False,
        label="Loads of the replay, requests/s",
        help_text="Three or more, such as 40, 80, 120. Empty: 40, 70 and 100% of the calibrated capacity of the fleet.",
    )
    note = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}))
    admission = forms.ChoiceField(
        required=False, choices=ADMISSION_NAMES, label="Admission of keys", initial="top_rate"
    )
    slots_per_destination = forms.IntegerField(
        required=False,
        min_value=0,
        label="W, warm slots per destination",
        help_text="Empty: as calibrated. More than calibrated does not pass the checklist.",
    )
    tokens_per_destination = forms.IntegerField(
        required=False,
        min_value=1,
        label="Warm KV tokens per destination",
        help_text="An additional limit, for workloads with prefix lengths.",
    )
    balance_target = forms.FloatField(
        required=False, label="Balance target, max/mean", help_text="Empty: keys are split by q_cap only."
    )
    tenant_quota = TenantSlots(
        required=False,
        label="Maximum slots per tenant",
        help_text="One per line, such as acme: 40. Other tenants have no limit.",
    )
    tenant_floor = TenantSlots(
        required=False,
        label="Reserved slots per tenant",
        help_text="One per line, such as acme: 40. Reserved first, up to the number of keys of the tenant.",
    )

    FIRST = ("workload", "calibration", "incumbent")
    REPLAN = ("max_imbalance_factor", "max_moved_share")
    LAST = ("replay_after_build", "loads_rps", "note")

    def __init__(self, *args: Any, fleet: Fleet, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        with_table = fleet.plans.filter(table__isnull=False).select_related("workload")
        querysets = {
            "workload": fleet.workloads.all(),
            "calibration": fleet.calibrations.all(),
            "incumbent": with_table.defer("summary", "parameters", "workload__shape", "workload__notices"),
        }
        for name, queryset in querysets.items():
            self.fields[name].queryset = queryset  # type: ignore[attr-defined]  # these three are choices
        live = fleet.rollouts.filter(state=Rollout.State.ACTIVE, plan__table__isnull=False).first()
        self.fields["incumbent"].initial = live.plan_id if live else None

    def clean(self) -> dict[str, Any]:
        """Refuse replan options without an incumbent: to ignore them would order another plan."""
        data: dict[str, Any] = self.cleaned_data
        if data.get("incumbent") is None and "incumbent" not in self.errors:
            for name in self.REPLAN:
                if data.get(name) is not None:
                    self.add_error(
                        name, "This option needs an incumbent. Choose an incumbent, or leave this field empty."
                    )
        data["admission"] = data.get("admission") or "top_rate"
        return data

    @property
    def first(self) -> list[forms.BoundField]:
        """The basic fields."""
        return [self[name] for name in self.FIRST]

    @property
    def replan(self) -> list[forms.BoundField]:
        """The fields of a replan."""
        return [self[name] for name in self.REPLAN]

    @property
    def last(self) -> list[forms.BoundField]:
        """The fields about the time after the build."""
        return [self[name] for name in self.LAST]

    @property
    def advanced(self) -> list[forms.BoundField]:
        """The advanced fields, which have defaults."""
        return [self[name] for name in self.fields if name not in (*self.FIRST, *self.REPLAN, *self.LAST)]

    @property
    def advanced_open(self) -> bool:
        """Whether an advanced field was changed or has an error, and must be visible."""
        return self.is_bound and any(field.errors or field.name in self.changed_data for field in self.advanced)
