"""The audit trail: one event for each change, written in the transaction that makes it."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db import models

from planner.context import current_origin
from planner.digests import digest
from planner.models import AuditEvent, Fleet
from planner.records import JsonObject
from planner.selectors.access.rights import open_break_glass_of

# Maps and lists of more entries are kept as their count, their digest and their first entries: the trail is for ever.
MOST_ENTRIES, FIRST_ENTRIES = 200, 20
# Every action that is recorded, with the words that a timeline shows.
ACTIONS: dict[str, str] = {
    "fleet.created": "created the fleet",
    "fleet.policy_changed": "changed the fleet's policy",
    "fleet.serving_profile_changed": "changed the fleet's serving profile",
    "fleet.destinations_added": "added destinations to the fleet",
    "fleet.destination_changed": "changed a destination",
    "fleet.fell_back": "fell back to Flat-LB",
    "workload.imported": "imported a workload",
    "calibration.ordered": "ordered a calibration",
    "calibration.recorded": "recorded a calibration",
    "calibration.failed": "could not finish a calibration",
    "profile.fit_ordered": "ordered a fit of engine constants",
    "profile.fitted": "fitted engine constants",
    "profile.fit_failed": "could not fit engine constants",
    "plan.ordered": "ordered a plan",
    "plan.built": "built the plan",
    "plan.build_failed": "could not build the plan",
    "plan.cancelled": "cancelled the plan",
    "plan.submitted": "submitted the plan for review",
    "plan.withdrawn": "took the plan back from review",
    "plan.retired": "put the plan away",
    "plan.approved": "approved the plan",
    "plan.rejected": "rejected the plan",
    "replay.started": "started a replay",
    "replay.finished": "finished a replay",
    "replay.failed": "could not finish a replay",
    "study.ordered": "ordered a study",
    "study.finished": "finished a study",
    "study.failed": "could not finish a study",
    "gate.evaluated": "evaluated the checklist",
    "rollout.started": "started a canary",
    "rollout.advanced": "advanced the rollout",
    "rollout.activated": "made the plan active",
    "rollout.aborted": "aborted the canary",
    "job.cancelled": "cancelled a job",
    "token.created": "created an API token",
    "token.revoked": "revoked an API token",
    "token.rotated": "rotated an API token",
    "plan.commented": "commented on the plan",
    "approval.withdrawn": "withdrew the approval",
    "waiver.requested": "asked for a waiver of a check",
    "waiver.granted": "granted a waiver of a check",
    "waiver.refused": "refused a waiver of a check",
    "waiver.revoked": "revoked a waiver of a check",
    "rollout.scheduled": "scheduled a canary",
    "rollout.rescheduled": "moved the schedule of a canary",
    "rollout.schedule_refused": "could not start the scheduled canary",
    "rollout.paused": "paused the canary",
    "rollout.resumed": "resumed the canary",
    "rollout.promoted": "made the plan active ahead of its steps",
    "rollout.analysed": "judged a step of the canary",
    "rollout.rolled_back": "rolled back to an earlier plan",
    "fleet.frozen": "froze rollouts",
    "fleet.unfrozen": "lifted the freeze of rollouts",
    "fleet.left_range": "left the validated range",
    "fleet.telemetry_silent": "stopped hearing from routers",
    "fleet.telemetry_heard": "hears from routers",
    "fleet.within_range": "is back within the validated range",
    "telemetry.source_added": "began to report telemetry under a name",
    "emergency.opened": "opened an emergency (break-glass)",
    "emergency.closed": "closed an emergency",
    "emergency.reviewed": "reviewed an emergency",
    "account.created": "created an account",
    "account.password_changed": "changed their password",
    "account.switched": "switched an account on or off",
    "access.granted": "gave a role",
    "access.taken": "took a role away",
    "webhook.created": "created a webhook",
    "webhook.changed": "changed a webhook",
    "webhook.deleted": "deleted a webhook",
    "audit.checkpointed": "signed a checkpoint of the audit trail",
    "audit.exported": "exported the audit trail",
}


def record_event(
    action: str,
    *,
    acting_user: User | None,
    fleet: Fleet | None,
    subject: models.Model,
    before: JsonObject | None = None,
    after: JsonObject | None = None,
    reason: str = "",
    evidence_digest: str = "",
    system: str = "system",
) -> AuditEvent:
    """Write one event; large values are kept as `condensed` leaves them.

    `acting_user` None is the console itself, by the name of what acted in it (`system`), such as "monitor". The event
    gets its place in the chain when the transaction commits. Whatever somebody does on a fleet while an emergency of
    theirs is open there carries its number in `after`, so that its review finds all of it.
    """
    if action not in ACTIONS:
        raise KeyError(f"{action} is not a registered audit action")
    here = current_origin()
    if (
        acting_user is not None
        and fleet is not None
        and (opened := open_break_glass_of(acting_user, fleet)) is not None
    ):
        after = {"emergency": opened.pk, **(after or {})}
    return AuditEvent.objects.create(
        fleet=fleet,
        action=action,
        actor=acting_user,
        actor_name=acting_user.get_username() if acting_user else system,
        token_number=here.token_number,
        token_prefix=here.token_prefix,
        request_id=here.request_id,
        ip_address=here.ip_address,
        subject_type=subject._meta.model_name or "",
        subject_id=subject.pk,
        subject_label=str(subject)[:200],
        before=_each_condensed(before or {}),
        after=_each_condensed(after or {}),
        reason=reason,
        evidence_digest=evidence_digest,
    )


def condensed(value: Any) -> Any:
    """The value, where maps and lists of more than 200 entries became ``{"count", "sha256", "first"}``.

    ``sha256`` is the digest of the whole (`planner.digests.digest`), so that it can be held against a copy; ``first``
    has 20 entries, of a map as [name, value] in the order of names.
    """
    if not isinstance(value, dict | list | tuple):
        return value
    if len(value) <= MOST_ENTRIES:
        return _each_condensed(value) if isinstance(value, dict) else [condensed(item) for item in value]
    entries = [list(pair) for pair in sorted(value.items())] if isinstance(value, dict) else list(value)
    return {
        "count": len(value),
        "sha256": digest(value),
        "first": [condensed(entry) for entry in entries[:FIRST_ENTRIES]],
    }


def _each_condensed(values: JsonObject) -> JsonObject:
    return {name: condensed(value) for name, value in values.items()}
