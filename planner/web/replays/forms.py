"""The form that orders a replay: basic and advanced fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from planner.models import CANDIDATE, Plan
from planner.routing import POLICIES
from planner.selectors.replays.policy_names import policy_name
from planner.services.replays.option_lines import gathered, read_fault, read_parameter
from planner.services.replays.options import ARRIVALS, DEFAULT_POLICIES, MAX_ROUNDS
from planner.services.replays.policy_parameters import known_parameters
from planner.web.core.forms import NumberList, Styled

ARRIVAL_NAMES = {
    "poisson": "Poisson: random, without bursts",
    "gamma": "Gamma: bursts increase with the CV",
    "bootstrap": "Bootstrap: random runs of gaps of the trace",
    "scaled": "Scaled: gaps of the trace, one seed",
}


class Lines(forms.CharField):
    """A text of lines, each parsed by `read`; an error names its line."""

    def __init__(self, *, read: Callable[[str], Any], **kwargs: Any) -> None:
        self.read = read
        super().__init__(required=False, **kwargs)
        self.widget = forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "class": "form-control"})

    def to_python(self, value: Any) -> Any:
        """Parse the lines; an error names its line."""
        found = []
        for at, line in enumerate((value or "").splitlines(), start=1):
            if line.strip():
                try:
                    found.append(self.read(line.strip()))
                except ValueError as error:
                    raise ValidationError(f"Line {at}: {error}.") from None
        return found


class OtherPlan(forms.TypedChoiceField):
    """A built plan of the fleet, by its number."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, coerce=int, empty_value=None, **kwargs)


class ReplayForm(Styled):
    """A replay of a built plan."""

    policies = forms.MultipleChoiceField(
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="CacheRoute and Flat-LB are always included.",
        initial=list(DEFAULT_POLICIES),
    )
    loads_rps = NumberList(
        required=False,
        label="Loads, requests/s",
        help_text="Three or more. Empty: 40, 70 and 100% of the calibrated capacity of the fleet.",
    )
    seeds = NumberList(
        required=False,
        whole=True,
        initial="1, 2, 3",
        help_text="Three or more. Policies with the same seed see the same arrivals.",
    )
    arrivals = forms.ChoiceField(choices=[(a, ARRIVAL_NAMES[a]) for a in ARRIVALS], initial="poisson")
    cv = forms.FloatField(required=False, label="CV of gamma arrivals", min_value=0)
    run_length = forms.IntegerField(
        required=False,
        label="Run length of bootstrap arrivals, gaps",
        min_value=1,
        help_text="Empty: the cube root of the number of gaps.",
    )
    requests = forms.IntegerField(initial=20_000, min_value=100, help_text="Requests per cell.")
    warmup = forms.FloatField(
        required=False, label="Warm-up, share of the requests", help_text="Replayed, but not measured. Empty: 0.2."
    )
    refine = forms.IntegerField(
        required=False,
        label="Rounds of bisection",
        min_value=0,
        max_value=MAX_ROUNDS,
        help_text="After the given loads, each round tests a load between the highest passed and the lowest failed "
        "load. Empty: none.",
    )
    extend = forms.BooleanField(required=False, label="Extend beyond the lowest and highest load")
    also = forms.TypedMultipleChoiceField(
        required=False,
        coerce=int,
        label="Other plans",
        help_text="Shows the cost of keeping an older plan.",
        widget=forms.CheckboxSelectMultiple,
    )
    policy_parameters = Lines(read=read_parameter, label="Policy parameters")
    faults = Lines(
        read=read_fault,
        label="Faults",
        help_text="One per line: down, drain or slow; destination; start and end as shares of the replay from 0 to 1. "
        "Such as down d03 0.4 0.6 or slow d02 0.3 0.8 x2. Makes a what-if replay, which is no evidence.",
    )
    switch_from = OtherPlan(
        label="Plan before the switch",
        help_text="Shows the hit rate dip. Makes a what-if replay, which is no evidence.",
    )
    switch_at = forms.FloatField(required=False, label="Time of the switch, share of the replay")

    FIRST = ("policies", "loads_rps", "seeds", "arrivals", "cv", "requests")

    def __init__(self, *args: Any, plan: Plan, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(name, policy_name(name)) for name in POLICIES]
        self.fields["policies"].choices = choices  # type: ignore[attr-defined]  # a choice
        parameters = {name: ", ".join(f"{k} {v}" for k, v in known_parameters(name).items()) for name in POLICIES}
        shown = "; ".join(f"{name}: {known}" for name, known in parameters.items() if known)
        self.fields["policy_parameters"].help_text = f"One per line, such as sticky.vnodes = 80. Defaults: {shown}."
        others = _others(plan)
        self.fields["also"].choices = others  # type: ignore[attr-defined]  # a choice
        self.fields["switch_from"].choices = [("", "no switch"), *others]  # type: ignore[attr-defined]  # a choice
        if not others:
            for name in ("also", "switch_from", "switch_at"):
                del self.fields[name]

    def clean_policy_parameters(self) -> dict[str, dict[str, Any]]:
        """Lines as {policy: {parameter: value}}."""
        try:
            return gathered(self.cleaned_data["policy_parameters"])
        except ValueError as error:
            raise ValidationError(f"{error}.") from None

    def clean(self) -> dict[str, Any]:
        """The options of the service, without empty ones."""
        data: dict[str, Any] = self.cleaned_data
        before, at = data.pop("switch_from", None), data.pop("switch_at", None)
        if (before is None) != (at is None):
            name = "switch_at" if at is None else "switch_from"
            self.add_error(
                name, "A switch needs the plan before the switch and its time. Fill in both, or leave both empty."
            )
        elif before is not None:
            data["switch"] = {"from_plan": before, "at": at}
        for name in ("warmup", "refine", "cv", "run_length"):
            if data.get(name) is None:
                data.pop(name, None)
        return data

    @property
    def first(self) -> list[forms.BoundField]:
        """The basic fields."""
        return [self[name] for name in self.FIRST]

    @property
    def advanced(self) -> list[forms.BoundField]:
        """The advanced fields, which have defaults."""
        return [self[name] for name in self.fields if name not in self.FIRST]

    @property
    def advanced_open(self) -> bool:
        """Whether an advanced field was changed or has an error, and must be visible."""
        return self.is_bound and any(field.errors or field.name in self.changed_data for field in self.advanced)


def _others(plan: Plan) -> list[tuple[int, str]]:
    """Other built plans for the same destinations, which the replay can include."""
    built = plan.fleet.plans.filter(kind=CANDIDATE, table__isnull=False).exclude(pk=plan.pk).select_related("workload")
    same = built.filter(parameters__destinations=plan.parameters.get("destinations"))
    rows = same.order_by("-number").values_list("number", "workload__name")[:50]
    return [(number, f"Plan {number}: {workload}") for number, workload in rows]
