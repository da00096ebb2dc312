"""Fields whose values JSON, forms and the database can represent."""

from __future__ import annotations

import math
from typing import Any

from rest_framework import serializers

from planner.services.fleets.destination_rules import is_number


class FiniteFloat(serializers.FloatField):
    """A finite float. The field of DRF accepts "nan", "1_0" and true, and fails on huge integers."""

    def to_internal_value(self, data: Any) -> float:
        """The number; a validation error when the value is no finite number."""
        if isinstance(data, bool) or (isinstance(data, str) and not is_number(data.strip())):
            self.fail("invalid")
        try:
            value = float(super().to_internal_value(data))
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            self.fail("invalid")
        return value
