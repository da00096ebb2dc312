"""Serializers of the audit trail: fields shown and input accepted. Rules live in the services."""

from __future__ import annotations

from rest_framework import serializers

from planner import models


class CheckpointSerializer(serializers.ModelSerializer[models.AuditCheckpoint]):
    class Meta:
        model = models.AuditCheckpoint
        fields = ["id", "position", "digest", "document", "created_at"]


class AuditEventSerializer(serializers.ModelSerializer[models.AuditEvent]):
    fleet = serializers.CharField(source="fleet.slug", read_only=True, allow_null=True, default=None)

    actor_id = serializers.IntegerField(
        read_only=True, allow_null=True, help_text="Id of the account; null for actions of the console"
    )

    class Meta:
        model = models.AuditEvent
        exclude = ["actor"]
