"""Warm slots per tenant in a request: an object in JSON, one field per tenant in a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.fields import empty

from planner.services.plans.options import MAX_SLOTS

FIELDS = ("tenant_quota", "tenant_floor")


class Several(list[Any]):
    """The values of a form field that was sent more than once."""


class SlotsOfTenants(serializers.DictField):
    """Slots by tenant, {name: slots}; a form sends `<field>.<tenant>=slots`."""

    child = serializers.IntegerField(min_value=0, max_value=MAX_SLOTS)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, allow_null=True, **kwargs)

    def get_value(self, dictionary: Any) -> Any:
        """The value of the request. A text under the bare name is returned too, so that it is refused.

        In a form the text after the first dot is the tenant, with any characters or empty. The parser of DRF
        stops at a line break and requires a name.
        """
        if self.field_name in dictionary or not hasattr(dictionary, "lists"):
            return dictionary.get(self.field_name, empty)
        prefix = f"{self.field_name}."
        found = {
            name.removeprefix(prefix): values[0] if len(values) == 1 else Several(values)
            for name, values in dictionary.lists()
            if name.startswith(prefix)
        }
        return found or empty

    def to_internal_value(self, data: Any) -> Any:
        """The slots per tenant. A duplicate tenant is refused, because its value is ambiguous."""
        if isinstance(data, dict):
            twice = {
                name: ["Sent more than once. Send each tenant once."]
                for name, value in data.items()
                if isinstance(value, Several)
            }
            if twice:
                raise serializers.ValidationError(twice)
        return super().to_internal_value(data)


def refuse_strays(data: Any) -> None:
    """Refuse misspelt fields of tenant slots, such as `tenant_quotas` or `tenant_quota[acme]`.

    Raises
    ------
    ValidationError
        With a pointer to each field.
    """
    if not isinstance(data, Mapping):
        return
    is_form = hasattr(data, "lists")
    strays = {
        name: ["Unknown field; write tenant_quota or tenant_floor, in a form followed by a dot and the tenant."]
        for name in data
        if name.startswith(FIELDS)
        and name not in FIELDS
        and not (is_form and name.startswith(tuple(f"{field}." for field in FIELDS)))
    }
    if strays:
        raise serializers.ValidationError(strays)
