"""Form base class and fields that several nouns share."""

from __future__ import annotations

import math
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.renderers import TemplatesSetting


class ConsoleRenderer(TemplatesSetting):
    """Renderer of `{{ form }}` and `{{ field.as_field_group }}`; set as FORM_RENDERER."""

    form_template_name = "parts/form.html"
    field_template_name = "parts/field.html"


class Styled(forms.Form):
    """A form whose controls carry the classes of the style sheet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            widget = field.widget
            if isinstance(widget, forms.CheckboxInput | forms.CheckboxSelectMultiple):
                widget.attrs.setdefault("class", "form-check-input")
            elif isinstance(widget, forms.Select):
                widget.attrs.setdefault("class", "form-select")
            elif not isinstance(widget, forms.HiddenInput):
                widget.attrs.setdefault("class", "form-control")
            if isinstance(field, forms.FloatField):
                widget.attrs["step"] = "any"
                widget.attrs["inputmode"] = "decimal"


class NumberList(forms.CharField):
    """Numbers separated by commas or spaces; empty is an empty list."""

    def __init__(self, *, whole: bool = False, **kwargs: Any) -> None:
        self.whole = whole
        super().__init__(**kwargs)

    def to_python(self, value: Any) -> Any:
        """Parse the numbers; the error names the first text that is not a number."""
        if isinstance(value, list):
            return value
        numbers: list[float] = []
        for text in (value or "").replace(",", " ").split():
            try:
                if len(text) > 40:
                    raise ValueError
                found = int(text) if self.whole else float(text)
            except ValueError:
                kind = "a whole number" if self.whole else "a number"
                raise ValidationError(f"{text[:40]!r} is not {kind}.") from None
            if not math.isfinite(found):
                raise ValidationError(f"{text[:40]!r} is not a finite number.")
            numbers.append(found)
        return numbers
