"""Fields that take what JSON, forms and the database all can hold."""

from __future__ import annotations

import math
from typing import Any

from rest_framework import serializers

from planner.services.fleets.destination_rules import is_number


class FiniteFloat(serializers.FloatField):
    """A float that JSON and the database can hold: DRF's takes "nan", "1_0" and true, and fails beyond floats."""

    def to_internal_value(self, data: Any) -> float:
        """The number; a validation error when it is none, or not finite."""
        if isinstance(data, bool) or (isinstance(data, str) and not is_number(data.strip())):
            self.fail("invalid")
        try:
            value = float(super().to_internal_value(data))
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            self.fail("invalid")
        return value
