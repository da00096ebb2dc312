"""Serializers of reviews: fields shown and input accepted. Rules live in the services."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from planner import models
from planner.selectors.gate.page import evidence_address
from planner.services.reviews.comments import MAX_COMMENT_CHARS
from planner.services.reviews.waivers import MAX_REASON


class WaitingSerializer(serializers.Serializer[Any]):
    kind = serializers.CharField(help_text="approval, waiver, review, break-glass, rollout or monitor")
    fleet = serializers.CharField()
    text = serializers.CharField()
    since = serializers.DateTimeField()
    path = serializers.CharField(help_text="Page of the item")
    simulated = serializers.BooleanField()


class ApprovalSerializer(serializers.ModelSerializer[models.Approval]):
    approver = serializers.CharField(source="approver.username", read_only=True)
    author = serializers.CharField(source="author.username", read_only=True)
    submitter = serializers.CharField(source="submitter.username", read_only=True)
    evidence_page = serializers.SerializerMethodField(help_text="Address of the stored evidence")

    class Meta:
        model = models.Approval
        fields = [
            "id", "plan", "evaluation", "decision", "evidence_digest", "evidence_page", "comment", "approver", "author",
            "submitter", "shared_email", "expires_at", "withdrawn_at", "withdrawn_reason", "created_at",
        ]  # fmt: skip

    @extend_schema_field(serializers.CharField())
    def get_evidence_page(self, row: models.Approval) -> str:
        """Address of the page of the evaluation."""
        return evidence_address(row.plan, row.evaluation_id)


class WaiverSerializer(serializers.ModelSerializer[models.Waiver]):
    requested_by = serializers.CharField(source="requested_by.username", read_only=True)
    granted_by = serializers.CharField(source="granted_by.username", read_only=True, allow_null=True, default=None)
    ended_by = serializers.CharField(source="ended_by.username", read_only=True, allow_null=True, default=None)

    class Meta:
        model = models.Waiver
        fields = [
            "id", "plan", "check_name", "reason", "requested_by", "created_at", "expires_at", "granted_by",
            "granted_at", "ended_by", "ended_at",
        ]  # fmt: skip


class CommentSerializer(serializers.ModelSerializer[models.PlanComment]):
    author = serializers.CharField(source="author.username", read_only=True)

    class Meta:
        model = models.PlanComment
        fields = ["id", "plan", "author", "text", "evidence_digest", "created_at"]


# --- Input ---------------------------------------------------------------------------------
class ApproveInput(serializers.Serializer[Any]):
    evidence_digest = serializers.CharField(max_length=71)
    comment = serializers.CharField(required=False, allow_blank=True, default="", max_length=4000)


class RejectInput(serializers.Serializer[Any]):
    comment = serializers.CharField(max_length=4000)


class WithdrawInput(serializers.Serializer[Any]):
    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=4000)


class CommentInput(serializers.Serializer[Any]):
    text = serializers.CharField(max_length=MAX_COMMENT_CHARS)


class WaiverInput(serializers.Serializer[Any]):
    plan = serializers.PrimaryKeyRelatedField(queryset=models.Plan.objects.all())
    check_name = serializers.CharField(max_length=60)
    reason = serializers.CharField(max_length=MAX_REASON)
    expires_at = serializers.DateTimeField(help_text="Within 30 days")
