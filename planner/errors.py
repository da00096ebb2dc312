"""Refusals that a user can act on. Doors (pages, API, commands) turn them into their own form."""

from __future__ import annotations


class Refused(Exception):
    """A request that the rules do not allow. `code` is stable, `message` is for a person."""

    status = 409
    code = "refused"

    def __init__(self, message: str, *, code: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.field = field


class Invalid(Refused):
    """A value that cannot be used; `field` names it."""

    status = 400
    code = "invalid"


class NotAllowed(Refused):
    """The acting user lacks the right."""

    status = 403
    code = "not-allowed"


class Conflict(Refused):
    """The state of things does not allow it (any more)."""

    code = "conflict"


class StaleVersion(Refused):
    """Somebody changed the row since it was read."""

    status = 412
    code = "stale-version"


class ArtifactLost(Refused):
    """A stored file is gone or is not what its digest says."""

    status = 503
    code = "artifact-lost"


class StorageFull(Refused):
    """The artifact folder takes no more."""

    status = 507
    code = "storage-full"


class Busy(Refused):
    """Too much of this goes on at once; the same request may go through later."""

    status = 503
    code = "busy"


class JobFailed(Exception):
    """An expected failure of a job: the message goes to the user, no traceback is kept."""
