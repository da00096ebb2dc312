"""Registry of job kinds: the work of each kind, and what its module does when a job fails, is cancelled or is lost.

A module that does the work of a kind registers it when it is imported (`planner.apps` imports them all). The `jobs`
package reads the registry and imports none of these modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from django.contrib.auth.models import User

from planner.models import Job

# Task that runs a job of any kind, by the id of its row.
RUN_JOB = "planner.run_job"
# Name of a task and the id that it is called with.
Message = tuple[str, int]


class RecordFailure(Protocol):
    """Record that a job could not be done; `crashed` when the cause is a fault and not an expected refusal."""

    def __call__(self, job: Job, *, message: str, crashed: bool) -> None: ...


class RecordCancellation(Protocol):
    """Cancel what a cancelled job was making; the caller has locked its row and its subject."""

    def __call__(self, *, acting_user: User, job: Job) -> None: ...


def _one_message(job: Job) -> Sequence[Message]:
    return [(RUN_JOB, job.pk)]


def _nothing_lost(_job: Job) -> int:
    return 0


@dataclass(frozen=True)
class JobKind:
    """The functions of one kind of job.

    Attributes
    ----------
    run
        Does the work of a claimed job and records its result.
    failed
        Records that the work could not be done.
    lock
        Locks the row that a job is about (by its id) before the row of the job is locked.
    cancelled
        Cancels what the job was making.
    messages
        Messages that make workers run the job; one by default.
    run_part
        For a kind that runs in parts: runs one part of the subject (by its id) without claiming the job.
    requeue_lost
        Queues parts whose worker died; returns how many.
    needs_message
        Whether messages have to be sent again; by default the sweep decides by the row of the job.
    """

    run: Callable[[Job], None] | None = None
    failed: RecordFailure | None = None
    lock: Callable[[int], object] | None = None
    cancelled: RecordCancellation | None = None
    messages: Callable[[Job], Sequence[Message]] = _one_message
    run_part: Callable[[int], None] | None = None
    requeue_lost: Callable[[Job], int] = _nothing_lost
    needs_message: Callable[[Job], bool] | None = None


_KINDS: dict[str, JobKind] = {}


def register(kind: str, functions: JobKind) -> None:
    """Register the functions of a kind, once.

    Raises
    ------
    ValueError
        When the kind is registered already, or can neither run nor run in parts.
    """
    if str(kind) in _KINDS:
        raise ValueError(f"job kind {str(kind)!r} is registered already")
    if functions.run_part is None and (functions.run is None or functions.failed is None):
        raise ValueError(f"job kind {str(kind)!r} needs run and failed, or run_part")
    _KINDS[str(kind)] = functions


def find(kind: str) -> JobKind | None:
    """Functions of a kind; None for a kind that this release does not know."""
    return _KINDS.get(kind)


def registered() -> frozenset[str]:
    """Kinds that are registered."""
    return frozenset(_KINDS)
