"""Forms of workloads. Business rules live in the services."""

from __future__ import annotations

from typing import Any

from django import forms

from planner.ingest import FORMATS
from planner.web.core.forms import Styled


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
