"""Refusals that a user can act on. Pages, API and commands convert them to their own form."""

from __future__ import annotations


class Refused(Exception):
    """A request that the rules refuse. `code` is stable, `message` is for people."""

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
    """The present state does not allow the request."""

    code = "conflict"


class StaleVersion(Refused):
    """The row was changed since it was read."""

    status = 412
    code = "stale-version"


class ArtifactLost(Refused):
    """A stored file is missing or does not match its digest."""

    status = 503
    code = "artifact-lost"


class StorageFull(Refused):
    """The artifact folder cannot be written."""

    status = 507
    code = "storage-full"


class Busy(Refused):
    """Too many such requests run at once; the same request may succeed later."""

    status = 503
    code = "busy"


class JobFailed(Exception):
    """An expected failure of a job: the message goes to the user, no traceback is kept."""
