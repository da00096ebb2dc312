"""Serializers of gate evaluations: fields shown and input accepted. Rules live in the services."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from planner import models
from planner.checklist import FAIL, MISSING, PASS
from planner.selectors.gate.page import evidence_address


class WaiverOfCheck(serializers.Serializer[Any]):
    """A waiver in the evidence of an evaluation."""

    id = serializers.IntegerField()
    check = serializers.CharField()
    reason = serializers.CharField()
    requested_by = serializers.CharField()
    requested_at = serializers.DateTimeField()
    granted_by = serializers.CharField()
    granted_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()


class CheckSerializer(serializers.Serializer[Any]):
    """A check of an item with its verdict."""

    name = serializers.CharField()
    title = serializers.CharField()
    verdict = serializers.ChoiceField(choices=[PASS, FAIL, MISSING])
    explanation = serializers.CharField()
    numbers = serializers.DictField()
    waivable = serializers.BooleanField(help_text="Whether a waiver is possible")
    waiver = WaiverOfCheck(allow_null=True)


class GateItemSerializer(serializers.ModelSerializer[models.GateItem]):
    checks = CheckSerializer(many=True, read_only=True)

    class Meta:
        model = models.GateItem
        fields = ["number", "title", "verdict", "waived", "explanation", "numbers", "checks", "links"]


class GateSerializer(serializers.ModelSerializer[models.GateEvaluation]):
    items = GateItemSerializer(many=True, read_only=True)
    created_by = serializers.CharField(source="created_by.username", read_only=True, allow_null=True, default=None)
    page = serializers.SerializerMethodField(help_text="Address of the page of the stored evidence")

    class Meta:
        model = models.GateEvaluation
        fields = [
            "id", "plan", "replay", "passed", "policy_version", "items", "evidence", "evidence_digest", "page",
            "created_by", "created_at",
        ]  # fmt: skip

    @extend_schema_field(serializers.CharField())
    def get_page(self, row: models.GateEvaluation) -> str:
        """The page of this evaluation."""
        return evidence_address(row.plan, row.pk)
