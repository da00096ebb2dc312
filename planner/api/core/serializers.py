"""Serializers that several nouns share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from planner import models
from planner.selectors.access import rights


class Strict(serializers.Serializer[Any]):
    """A nested object of a request that refuses unknown names."""

    def to_internal_value(self, data: Any) -> Any:
        """The validated object. The view checks the top level, because it knows the fields of forms."""
        if self.parent is not None and isinstance(data, Mapping):
            sent = {re.split(r"[.\[]", str(name), maxsplit=1)[0] for name in data}
            if strays := sorted(sent - set(self.fields)):
                known = f"Unknown field; known: {', '.join(self.fields)}."
                raise serializers.ValidationError({name: [known] for name in strays})
        return super().to_internal_value(data)


# --- Input ---------------------------------------------------------------------------------
class FleetField(serializers.SlugRelatedField[models.Fleet]):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(slug_field="slug", queryset=models.Fleet.objects.all(), **kwargs)

    def get_queryset(self) -> QuerySet[models.Fleet]:
        """The fleets that the user may see; other fleets are reported as unknown."""
        request = self.context.get("request")
        return models.Fleet.objects.all() if request is None else rights.visible_fleets(request.user)


class ReasonInput(serializers.Serializer[Any]):
    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=4000)
