"""Forms of workloads. Business rules live in the services."""

from __future__ import annotations

from typing import Any

from django import forms

from planner.ingest import FORMATS
from planner.web.core.forms import Styled


class ImportForm(Styled):
    """Import of a file of measured rates or requests."""

    file = forms.FileField(help_text="Plain or gzip-compressed. Prompt text is not needed.")
    name = forms.CharField(required=False, max_length=120, help_text="Empty: the name of the file.")
    format = forms.ChoiceField(initial="auto", help_text="Automatic: detected from the first line of the file.")
    key_depth = forms.IntegerField(
        initial=2,
        min_value=1,
        label="Key depth, blocks",
        help_text="Traces with prompt blocks: number of leading blocks in the key.",
    )
    block_tokens = forms.IntegerField(
        initial=512, min_value=1, label="Block length, tokens", help_text="Traces with prompt blocks only."
    )
    measured_at = forms.DateTimeField(
        required=False,
        label="Measured until (UTC)",
        help_text="End of the measurement. If empty, the first item of the checklist cannot pass.",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
    )
    strict = forms.BooleanField(required=False, help_text="Refuse the file instead of repairing it.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        formats = [(name, f"{name}: {form.holds}") for name, form in FORMATS.items()]
        self.fields["format"].choices = [("auto", "Automatic"), *formats]  # type: ignore[attr-defined]  # a choice
