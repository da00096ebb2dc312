"""Order plans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from planner.digests import digest
from planner.errors import Invalid
from planner.models import Calibration, Fleet, Job, Plan, Workload
from planner.records import JsonObject
from planner.selectors.access import rights
from planner.services.audit.events import record_event
from planner.services.base.locking import lock
from planner.services.jobs import jobs
from planner.services.plans import options as plan_options
from planner.services.replays import options as replay_options


@transaction.atomic
def order_plan(
    *,
    acting_user: User,
    fleet: Fleet,
    workload: Workload,
    calibration: Calibration,
    incumbent: Plan | None = None,
    replay: JsonObject | None = None,
    note: str = "",
    **options: Any,
) -> tuple[Plan, Job]:
    """Order a plan with the options of `options.checked`. The build runs as a job.

    Parameters
    ----------
    acting_user, fleet
        Who orders the plan, and for which fleet.
    workload, calibration
        The inputs, both of the fleet.
    incumbent
        A plan of the fleet that has a table. The order is then a replan: keys that are warm stay on their destinations
        as far as the balance allows.
    replay
        Options of a replay that follows the build, as in `replays.options.chosen`; None for no replay.
    note
        A remark, stored as given and shown as the reason in the audit trail.
    **options
        The other options of `options.checked`.

    Returns
    -------
    tuple of Plan and Job
        The queued plan, with the next number of the fleet, and the job of its build.

    Raises
    ------
    NotAllowed
        When the user may not plan for the fleet.
    Invalid
        For an option that cannot be used; `field` names it, and begins with ``replay/`` for an option of the replay.
    Conflict
        When no destination is up.
    ArtifactLost
        When the workload or another plan cannot be read from storage.
    """
    rights.require(acting_user, rights.PLAN, fleet)
    # Before the lock: a fallback takes it too, and must not wait for a large file.
    plan_options.check_workload(fleet, workload, **options)
    if replay is not None:
        with _within_replay():
            replay_options.check_requests(workload, **replay)
            replay_options.check_others(fleet, workload, **replay)
    fleet = lock(Fleet, fleet.pk)
    chosen = plan_options.checked(fleet=fleet, calibration=calibration, incumbent=incumbent, **options)
    parameters = chosen.to_json()
    if replay is not None:
        # Refuse now, while the user waits for the answer, and not after the build.
        with _within_replay():
            replay_options.chosen(Plan(fleet=fleet, calibration=calibration, parameters=parameters), **replay)
    latest = fleet.plans.aggregate(n=Max("number"))["n"] or 0
    plan = Plan.objects.create(
        fleet=fleet,
        number=latest + 1,
        workload=workload,
        calibration=calibration,
        incumbent=incumbent,
        parameters=parameters,
        fingerprint=fleet.serving_profile.fingerprint,
        inputs_digest=_inputs_digest(workload, incumbent, parameters),
        author=acting_user,
        note=note,
    )
    job = jobs.file_job(
        acting_user=acting_user,
        fleet=fleet,
        kind=Job.Kind.BUILD_PLAN,
        subject_id=plan.pk,
        total=3,
        payload={"replay": replay},
    )
    record_event(
        "plan.ordered",
        acting_user=acting_user,
        fleet=fleet,
        subject=plan,
        after={"workload": workload.name, "calibration": calibration.pk, **parameters, "replay": bool(replay)},
        reason=note,
    )
    return plan, job


@contextmanager
def _within_replay() -> Iterator[None]:
    """Prefix the field of an error in the replay options with its place in the order."""
    try:
        yield
    except Invalid as refusal:
        place = "workload" if refusal.field == "plan" else f"replay/{refusal.field}" if refusal.field else "replay"
        raise Invalid(refusal.message, code=refusal.code, field=place) from refusal


def _inputs_digest(workload: Workload, incumbent: Plan | None, parameters: JsonObject) -> str:
    inputs: JsonObject = {"rates": workload.rates.digest, "parameters": parameters}
    if incumbent is not None and incumbent.table is not None:
        inputs["incumbent"] = {"table": incumbent.table.digest, "destinations": incumbent.parameters["destinations"]}
    return digest(inputs)
