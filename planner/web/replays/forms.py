"""The form that orders a replay: the ladder first, then what few ask for."""

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
    "gamma": "Gamma: burstier the higher the CV",
    "bootstrap": "Bootstrap: runs of the trace's own gaps, drawn anew",
    "scaled": "Scaled: the trace's own gaps, one seed",
}


class Lines(forms.CharField):
    """One thing a line, as a list of what `read` makes of each; faults name their line."""

    def __init__(self, *, read: Callable[[str], Any], **kwargs: Any) -> None:
        self.read = read
        super().__init__(required=False, **kwargs)
        self.widget = forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "class": "form-control"})

    def to_python(self, value: Any) -> Any:
        """Parse, naming the line of a fault."""
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
        help_text="CacheRoute and Flat-LB are always among them.",
        initial=list(DEFAULT_POLICIES),
    )
    loads_rps = NumberList(
        required=False,
        label="Loads, requests/s",
        help_text="Three or more. Left empty: 40, 70 and 100% of the fleet's calibrated capacity.",
    )
    seeds = NumberList(required=False, whole=True, initial="1, 2, 3", help_text="Three or more: paired over policies.")
    arrivals = forms.ChoiceField(choices=[(a, ARRIVAL_NAMES[a]) for a in ARRIVALS], initial="poisson")
    cv = forms.FloatField(required=False, label="CV of gamma arrivals", min_value=0)
    run_length = forms.IntegerField(
        required=False,
        label="Gaps in a run of bootstrap arrivals",
        min_value=1,
        help_text="Left empty: the cube root of their number.",
    )
    requests = forms.IntegerField(initial=20_000, min_value=100, help_text="Of each cell.")
    warmup = forms.FloatField(
        required=False, label="Warm-up, share of the requests", help_text="Replayed, not measured. Left empty: 0.2."
    )
    refine = forms.IntegerField(
        required=False,
        label="Rounds of bisection",
        min_value=0,
        max_value=MAX_ROUNDS,
        help_text="After the ladder, each tests a load between what a policy passes and fails. Left empty: none.",
    )
    extend = forms.BooleanField(required=False, label="Rounds follow an open end of the ladder too")
    also = forms.TypedMultipleChoiceField(
        required=False,
        coerce=int,
        label="Other plans beside it",
        help_text="An older plan shows what its age costs.",
        widget=forms.CheckboxSelectMultiple,
    )
    policy_parameters = Lines(read=read_parameter, label="Parameters of policies")
    faults = Lines(
        read=read_fault,
        label="Faults",
        help_text="One a line: down, drain or slow, a destination, start and end as shares of the replay from 0 to 1, "
        "such as down d03 0.4 0.6 or slow d02 0.3 0.8 x2. A what-if: no evidence for the checklist.",
    )
    switch_from = OtherPlan(
        label="Live before this plan", help_text="Shows the re-warm dip. A what-if: no evidence for the checklist."
    )
    switch_at = forms.FloatField(required=False, label="Share of the replay at which this plan takes over")

    FIRST = ("policies", "loads_rps", "seeds", "arrivals", "cv", "requests")

    def __init__(self, *args: Any, plan: Plan, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(name, policy_name(name)) for name in POLICIES]
        self.fields["policies"].choices = choices  # type: ignore[attr-defined]  # a choice
        parameters = {name: ", ".join(f"{k} {v}" for k, v in known_parameters(name).items()) for name in POLICIES}
        shown = "; ".join(f"{name}: {known}" for name, known in parameters.items() if known)
        self.fields["policy_parameters"].help_text = f"One a line, such as sticky.vnodes = 80. Defaults: {shown}."
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
        """The options as the service takes them: what was left empty is not among them."""
        data: dict[str, Any] = self.cleaned_data
        before, at = data.pop("switch_from", None), data.pop("switch_at", None)
        if (before is None) != (at is None):
            name = "switch_at" if at is None else "switch_from"
            self.add_error(name, "A switch needs both the plan before and the time.")
        elif before is not None:
            data["switch"] = {"from_plan": before, "at": at}
        for name in ("warmup", "refine", "cv", "run_length"):
            if data.get(name) is None:
                data.pop(name, None)
        return data

    @property
    def first(self) -> list[forms.BoundField]:
        """What every order says."""
        return [self[name] for name in self.FIRST]

    @property
    def advanced(self) -> list[forms.BoundField]:
        """What has a good default."""
        return [self[name] for name in self.fields if name not in self.FIRST]

    @property
    def advanced_open(self) -> bool:
        """Whether one of those was filled in or is wrong, and must not be hidden."""
        return self.is_bound and any(field.errors or field.name in self.changed_data for field in self.advanced)


def _others(plan: Plan) -> list[tuple[int, str]]:
    """Other plans that can be replayed in this one's place: built, for the same destinations."""
    built = plan.fleet.plans.filter(kind=CANDIDATE, table__isnull=False).exclude(pk=plan.pk).select_related("workload")
    same = built.filter(parameters__destinations=plan.parameters.get("destinations"))
    rows = same.order_by("-number").values_list("number", "workload__name")[:50]
    return [(number, f"Plan {number}: {workload}") for number, workload in rows]
