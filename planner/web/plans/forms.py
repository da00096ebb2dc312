"""The form that orders a plan: what everybody fills in, what a replan takes, and what few ever need."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from planner.models import Calibration, Fleet, Plan, Rollout, Workload
from planner.services.plans.options import DEFAULT_IMBALANCE_FACTOR
from planner.web.core.forms import NumberList, Styled

SCRATCH = "from scratch"
ADMISSION_NAMES = [
    ("top_rate", "By rate: the busiest keys first (Algorithm 1)"),
    ("density", "By density: most prefill saved per slot or token first"),
    ("exact", "Exact: the set of keys that saves most"),
]


class TenantSlots(forms.CharField):
    """A tenant and its slots a line, as {tenant: slots}; empty is None."""

    widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "placeholder": "acme: 40"})

    def to_python(self, value: Any) -> Any:
        """Parse, naming the line of a fault. The last colon ends the name, so a name may hold colons."""
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
                raise ValidationError(f"Line {at}: {name[:80]!r} stands there twice.")
            found[name] = int(text)
        return found or None


class PlanChoice(forms.ModelChoiceField):
    """Plans by number and state."""

    def label_from_instance(self, obj: Plan) -> str:
        """What the list calls a plan."""
        return f"{obj}: {obj.workload}, {obj.get_state_display().lower()}"


class WorkloadChoice(forms.ModelChoiceField):
    """Workloads by name, rate and date: several may look alike but for these."""

    def label_from_instance(self, obj: Workload) -> str:
        """What the list calls a workload."""
        return f"{obj.name}, {obj.total_rps:g} requests/s, measured {obj.measured_at:%Y-%m-%d %H:%M}"


class CalibrationChoice(forms.ModelChoiceField):
    """Calibrations by figures, censoring and date."""

    def label_from_instance(self, obj: Calibration) -> str:
        """What the list calls a calibration."""
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
        label="Start from",
        help_text="A plan: what it holds warm stays where it is, as far as the balance allows.",
    )
    max_imbalance_factor = forms.FloatField(
        required=False,
        label="Balance given up to keep keys warm",
        help_text="Times the max/mean of a plan from scratch: 1.02 gives up 2%. "
        f"Left empty: {DEFAULT_IMBALANCE_FACTOR:g}.",
        widget=forms.NumberInput(attrs={"placeholder": f"{DEFAULT_IMBALANCE_FACTOR:g}"}),
    )
    max_moved_share = forms.FloatField(
        required=False,
        label="Most of the warm rate that may move",
        help_text="A share from 0 to 1, such as 0.1. Left empty: as much as the balance needs. What must leave a lost "
        "destination moves in any case.",
    )
    replay_after_build = forms.BooleanField(
        required=False, initial=True, label="Replay against Flat-LB after the build"
    )
    loads_rps = NumberList(
        required=False,
        label="Loads of that replay, requests/s",
        help_text="Three or more, such as 40, 80, 120. Left empty: 40, 70 and 100% of the fleet's calibrated capacity.",
    )
    note = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}))
    admission = forms.ChoiceField(
        required=False, choices=ADMISSION_NAMES, label="Which keys get warm slots", initial="top_rate"
    )
    slots_per_destination = forms.IntegerField(
        required=False,
        min_value=0,
        label="W, warm slots per destination",
        help_text="Left empty: as calibrated. More than calibrated will not pass the checklist.",
    )
    tokens_per_destination = forms.IntegerField(
        required=False,
        min_value=1,
        label="Warm KV tokens per destination",
        help_text="A second limit beside W, for workloads with prefix lengths.",
    )
    balance_target = forms.FloatField(
        required=False, label="Balance target, max/mean", help_text="Left empty: keys are split by q_cap only."
    )
    tenant_quota = TenantSlots(
        required=False, label="Most slots of a tenant", help_text="One a line: tenant, colon, slots. Others: no limit."
    )
    tenant_floor = TenantSlots(
        required=False,
        label="Slots reserved for a tenant",
        help_text="One a line: tenant, colon, slots. Reserved first, as far as the tenant has keys for them.",
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
        """A plan from scratch has no use for the numbers of a replan: to drop one would be to order something else."""
        data: dict[str, Any] = self.cleaned_data
        if data.get("incumbent") is None and "incumbent" not in self.errors:
            for name in self.REPLAN:
                if data.get(name) is not None:
                    self.add_error(name, "Only a replan takes this: choose a plan to start from, or leave it empty.")
        data["admission"] = data.get("admission") or "top_rate"
        return data

    @property
    def first(self) -> list[forms.BoundField]:
        """What every order says."""
        return [self[name] for name in self.FIRST]

    @property
    def replan(self) -> list[forms.BoundField]:
        """What only a replan takes."""
        return [self[name] for name in self.REPLAN]

    @property
    def last(self) -> list[forms.BoundField]:
        """What follows the build."""
        return [self[name] for name in self.LAST]

    @property
    def advanced(self) -> list[forms.BoundField]:
        """What has a good default."""
        return [self[name] for name in self.fields if name not in (*self.FIRST, *self.REPLAN, *self.LAST)]

    @property
    def advanced_open(self) -> bool:
        """Whether one of those was filled in or is wrong, and must not be hidden."""
        return self.is_bound and any(field.errors or field.name in self.changed_data for field in self.advanced)
