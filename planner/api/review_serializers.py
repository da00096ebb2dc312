"""What the gate, approvals, waivers and comments show and accept. Thin: rules live in the services."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from planner import models
from planner.checklist import FAIL, MISSING, PASS
from planner.selectors.gate.page import evidence_address
from planner.services.reviews.comments import MAX_COMMENT_CHARS
from planner.services.reviews.waivers import MOST_REASON


class WaiverOfCheck(serializers.Serializer[Any]):
    """A waiver as the evidence of an evaluation holds it."""

    id = serializers.IntegerField()
    check = serializers.CharField()
    reason = serializers.CharField()
    requested_by = serializers.CharField()
    requested_at = serializers.DateTimeField()
    granted_by = serializers.CharField()
    granted_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()


class CheckSerializer(serializers.Serializer[Any]):
    """A named check of an item, as it was judged."""

    name = serializers.CharField()
    title = serializers.CharField()
    verdict = serializers.ChoiceField(choices=[PASS, FAIL, MISSING])
    explanation = serializers.CharField()
    numbers = serializers.DictField()
    waivable = serializers.BooleanField(help_text="Whether people may let a plan go on without it")
    waiver = WaiverOfCheck(allow_null=True)


class GateItemSerializer(serializers.ModelSerializer[models.GateItem]):
    checks = CheckSerializer(many=True, read_only=True)

    class Meta:
        model = models.GateItem
        fields = ["number", "title", "verdict", "waived", "explanation", "numbers", "checks", "links"]


class GateSerializer(serializers.ModelSerializer[models.GateEvaluation]):
    items = GateItemSerializer(many=True, read_only=True)
    created_by = serializers.CharField(source="created_by.username", read_only=True, allow_null=True, default=None)
    page = serializers.SerializerMethodField(help_text="Address of the evidence, frozen as it was seen")

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


class ApprovalSerializer(serializers.ModelSerializer[models.Approval]):
    approver = serializers.CharField(source="approver.username", read_only=True)
    author = serializers.CharField(source="author.username", read_only=True)
    submitter = serializers.CharField(source="submitter.username", read_only=True)
    evidence_page = serializers.SerializerMethodField(help_text="Address of what the approver saw")

    class Meta:
        model = models.Approval
        fields = [
            "id", "plan", "evaluation", "decision", "evidence_digest", "evidence_page", "comment", "approver", "author",
            "submitter", "shared_email", "expires_at", "withdrawn_at", "withdrawn_reason", "created_at",
        ]  # fmt: skip

    @extend_schema_field(serializers.CharField())
    def get_evidence_page(self, row: models.Approval) -> str:
        """The page of the evaluation that was decided on."""
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


# --- What is accepted ---------------------------------------------------------------------------------
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
    reason = serializers.CharField(max_length=MOST_REASON)
    expires_at = serializers.DateTimeField(help_text="Within 30 days")
