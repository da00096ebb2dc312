"""Record audit events: one for each change, written in the transaction of the change."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db import models

from planner.context import current_origin
from planner.digests import digest
from planner.models import AuditEvent, Fleet
from planner.models.audit import EARLIER_ACTIONS
from planner.records import JsonObject
from planner.selectors.access.rights import open_break_glass_of

# Larger maps and lists are stored as their count, their digest and their first entries: events are never deleted.
MAX_ENTRIES, FIRST_ENTRIES = 200, 20
# Every action that is recorded, with the words of the timeline.
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
    "plan.withdrawn": "withdrew the plan from review",
    "plan.archived": "archived the plan",
    "plan.approved": "approved the plan",
    "plan.rejected": "rejected the plan",
    "replay.started": "started a replay",
    "replay.finished": "finished a replay",
    "replay.failed": "could not finish a replay",
    "study.ordered": "ordered a study",
    "study.finished": "finished a study",
    "study.failed": "could not finish a study",
    "gate.evaluated": "evaluated the gate",
    "rollout.started": "started a canary",
    "rollout.advanced": "advanced the rollout",
    "rollout.activated": "activated the plan",
    "rollout.aborted": "aborted the canary",
    "job.cancelled": "cancelled a job",
    "token.created": "created an API token",
    "token.revoked": "revoked an API token",
    "token.rotated": "rotated an API token",
    "plan.commented": "commented on the plan",
    "approval.withdrawn": "withdrew the approval",
    "waiver.requested": "requested a waiver of a check",
    "waiver.granted": "granted a waiver of a check",
    "waiver.refused": "refused a waiver of a check",
    "waiver.revoked": "revoked a waiver of a check",
    "rollout.scheduled": "scheduled a canary",
    "rollout.rescheduled": "rescheduled a canary",
    "rollout.schedule_refused": "could not start the scheduled canary",
    "rollout.paused": "paused the canary",
    "rollout.resumed": "resumed the canary",
    "rollout.promoted": "promoted the canary before its last step",
    "rollout.analysed": "judged a step of the canary",
    "rollout.rolled_back": "rolled back to an earlier plan",
    "fleet.frozen": "froze rollouts",
    "fleet.unfrozen": "lifted the freeze of rollouts",
    "fleet.out_of_range": "telemetry is outside the validated range",
    "fleet.telemetry_silent": "router telemetry stopped",
    "fleet.telemetry_resumed": "router telemetry resumed",
    "fleet.back_in_range": "telemetry is inside the validated range again",
    "telemetry.source_added": "reported telemetry under a new source name",
    "break_glass.opened": "opened break-glass",
    "break_glass.closed": "closed break-glass",
    "break_glass.reviewed": "reviewed break-glass",
    "account.created": "created an account",
    "account.password_changed": "changed the password",
    "account.switched": "enabled or disabled an account",
    "access.granted": "granted a role",
    "access.removed": "removed a role",
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
    """Write one event; large values are stored in the form that `condensed` returns.

    The event gets its place in the chain when the transaction commits. Events of a person with open break-glass on the
    fleet carry its id in `after`, so that its review finds all of them.

    Parameters
    ----------
    action : str
        One of `ACTIONS`.
    acting_user : User or None
        None for the console itself, named by `system`, such as "monitor".
    fleet, subject : Fleet or None, Model
        What the event is about.
    before, after : JSON object, optional
        Values before and after the change.
    reason, evidence_digest : str
        Why, and the digest of the evidence that it rests on.
    system : str
        Name of the acting part of the console, where there is no user.

    Returns
    -------
    AuditEvent
        The stored event.

    Raises
    ------
    KeyError
        When the action is not registered.
    """
    if action not in ACTIONS:
        raise KeyError(f"{action} is not a registered audit action")
    here = current_origin()
    if (
        acting_user is not None
        and fleet is not None
        and (opened := open_break_glass_of(acting_user, fleet)) is not None
    ):
        after = {"break_glass": opened.pk, **(after or {})}
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


def label_of(action: str) -> str:
    """Return the words for an action, including names that earlier releases stored."""
    return ACTIONS.get(EARLIER_ACTIONS.get(action, action), action)


def condensed(value: Any) -> Any:
    """Return the value with maps and lists of more than 200 entries replaced by ``{"count", "sha256", "first"}``.

    ``sha256`` is the digest of the whole (`planner.digests.digest`), so that it can be held against a copy; ``first``
    has 20 entries, of a map as [name, value] in the order of names.
    """
    if not isinstance(value, dict | list | tuple):
        return value
    if len(value) <= MAX_ENTRIES:
        return _each_condensed(value) if isinstance(value, dict) else [condensed(item) for item in value]
    entries = [list(pair) for pair in sorted(value.items())] if isinstance(value, dict) else list(value)
    return {
        "count": len(value),
        "sha256": digest(value),
        "first": [condensed(entry) for entry in entries[:FIRST_ENTRIES]],
    }


def _each_condensed(values: JsonObject) -> JsonObject:
    return {name: condensed(value) for name, value in values.items()}
