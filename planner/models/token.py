from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from planner.models.fleet import Fleet


class ApiToken(models.Model):
    """A credential for automation or a router. Only its HMAC is stored; it cannot approve plans."""

    class Scope(models.TextChoices):
        READ = "read"
        INGEST = "ingest"
        PLAN = "plan"
        DEPLOY = "deploy"
        ROUTE = "route"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=120)
    prefix = models.CharField(max_length=16, unique=True, help_text="First characters, shown to identify the token")
    digest = models.CharField(max_length=64, unique=True)
    scopes = ArrayField(models.CharField(max_length=10, choices=Scope))
    fleet = models.ForeignKey(Fleet, on_delete=models.CASCADE, related_name="api_tokens", null=True, blank=True)
    allowed_networks = ArrayField(
        models.CharField(max_length=43),
        default=list,
        blank=True,
        help_text="Networks that may use the token; none: any",
    )
    rotated_from = models.ForeignKey(
        "self", on_delete=models.SET_NULL, related_name="successors", null=True, blank=True
    )
    expires_at = models.DateTimeField(null=True, blank=True)
    successor_due = models.DateTimeField(
        null=True, blank=True, help_text="Expiry after rotation; a new token has its name"
    )
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    last_used_ip = models.GenericIPAddressField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            # A rotated token keeps its name; its successor has the same name.
            models.UniqueConstraint(
                fields=["user", "name"], condition=Q(revoked_at=None, successor_due=None), name="token_name_once_a_user"
            ),
            models.CheckConstraint(
                condition=Q(scopes__contained_by=["read", "ingest", "plan", "deploy", "route"]) & Q(scopes__len__gte=1),
                name="token_scopes_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}...)"


class IdempotencyRecord(models.Model):
    """The stored answer to a POST with an Idempotency-Key, returned again when the request is repeated."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=255)
    request_digest = models.CharField(
        max_length=64, help_text="Digest of method, path and body; another digest is a conflict"
    )
    status = models.PositiveSmallIntegerField(null=True)
    body = models.JSONField(null=True)
    headers = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(F("user"), F("key"), name="idempotency_key_once_a_user")]

    def __str__(self) -> str:
        return self.key
