"""Types of every importer: problems, notices, and the imported workload."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.simulation.trace import Trace

__all__ = [
    "MAX_KEY_CHARS",
    "MAX_TOKENS",
    "ImportProblem",
    "ImportedWorkload",
    "Notice",
    "Notices",
    "ReadOptions",
    "dominant_key",
    "excerpt",
]

MAX_KEY_CHARS = 512
# Far above every context window; higher lengths could overflow sums in int64.
MAX_TOKENS = 2**31 - 1
_EXCERPT_CHARS = 80


def excerpt(value: object) -> str:
    """Return at most 80 characters of a value, control characters escaped, safe to print on one line."""
    text = value if isinstance(value, str) else repr(value)
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:_EXCERPT_CHARS])
    if len(text) > _EXCERPT_CHARS or len(shown) > _EXCERPT_CHARS:
        return shown[: _EXCERPT_CHARS - 1] + "…"
    return shown


class ImportProblem(Exception):
    """A fault of a file that cannot be imported, with its place.

    ``str(problem)`` is one sentence that names file, row and field; the attributes hold the same for programs.

    Attributes
    ----------
    code : str
        Stable name of the kind of fault, such as ``not-finite`` or ``duplicate-key``.
    message : str
        The fault, without its place.
    file : str
        Name of the file.
    row : int or None
        Line number in the (decompressed) file, from 1; of a record over several lines, its first.
    field : str or None
        Column or JSON field.
    value : str or None
        At most 80 characters of the bad value.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        file: str,
        row: int | None = None,
        field: str | None = None,
        value: object = None,
    ) -> None:
        self.code = code
        self.message = message
        self.file = file
        self.row = row
        self.field = None if field is None else excerpt(field)  # may come from the file
        self.value = None if value is None else excerpt(value)
        super().__init__(code, message)

    def __str__(self) -> str:
        place = [self.file]
        if self.row is not None:
            place.append(f"row {self.row}")
        if self.field is not None:
            place.append(self.field)
        return f"{', '.join(place)}: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Task results are pickled, and pickle does not pass keyword-only arguments.
        return (_rebuild, (self.code, self.message, self.file, self.row, self.field, self.value))

    def as_dict(self) -> dict[str, str | int | None]:
        """Return the fields as JSON values; ``detail`` is the whole sentence."""
        return {
            "code": self.code,
            "detail": str(self),
            "message": self.message,
            "file": self.file,
            "row": self.row,
            "field": self.field,
            "value": self.value,
        }


def _rebuild(
    code: str, message: str, file: str, row: int | None, field: str | None, value: str | None
) -> ImportProblem:
    return ImportProblem(code, message, file=file, row=row, field=field, value=value)


@dataclass(frozen=True)
class Notice:
    """A documented repair or a warning, shown with the imported workload.

    ``count`` is the number of occurrences, ``first_row`` the line of the first one (None: the whole file).
    """

    code: str
    count: int
    message: str
    first_row: int | None = None

    def as_dict(self) -> dict[str, str | int | None]:
        """Return the fields as JSON values."""
        return {
            "code": self.code,
            "count": self.count,
            "message": self.message,
            "first_row": self.first_row,
        }


class Notices:
    """Notices by code, in the order of their first occurrence."""

    def __init__(self, file: str, *, strict: bool) -> None:
        self._file = file
        self._strict = strict
        self._first: dict[str, tuple[str, int | None]] = {}
        self._count: dict[str, int] = {}

    def note(self, code: str, message: str, *, row: int | None = None, count: int = 1) -> None:
        """Count a warning; the message and row of the first occurrence are kept.

        Parameters
        ----------
        code : str
            Stable name of the kind of warning.
        message : str
            One sentence for people.
        row : int, optional
            Line number in the file, from 1.
        count : int
            Number of occurrences.
        """
        if code not in self._first:
            self._first[code] = message, row
        self._count[code] = self._count.get(code, 0) + count

    def repair(
        self, code: str, message: str, *, row: int | None = None, field: str | None = None, count: int = 1
    ) -> None:
        """Count a repair of the data.

        Parameters
        ----------
        code : str
            Stable name of the kind of repair.
        message : str
            One sentence for people.
        row : int, optional
            Line number in the file, from 1.
        field : str, optional
            Column or JSON field.
        count : int
            Number of occurrences.

        Raises
        ------
        ImportProblem
            In strict mode, which allows no repair.
        """
        if self._strict:
            message = f"{message} A strict import allows no repair."
            raise ImportProblem(code, message, file=self._file, row=row, field=field)
        self.note(code, message, row=row, count=count)

    def as_list(self) -> list[Notice]:
        """Return the notices collected so far."""
        return [Notice(code, self._count[code], message, row) for code, (message, row) in self._first.items()]


@dataclass(frozen=True)
class ReadOptions:
    """Settings of all readers; each reader uses the ones that apply to its format."""

    key_depth: int = 2
    block_tokens: int = 512
    strict: bool = False
    max_keys: int = 5_000_000
    max_requests: int = 5_000_000
    max_blocks: int = 20_000_000

    def __post_init__(self) -> None:
        for name in ("key_depth", "block_tokens", "max_keys", "max_requests", "max_blocks"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: {value!r} is not a positive whole number")


@dataclass(frozen=True)
class ImportedWorkload:
    """Traffic of a file: the rate of each key and, where the file has them, the requests.

    Attributes
    ----------
    format : str
        Name of the format read.
    key_names : list of str, length B
        Distinct names, 1 to 512 characters each; the position is the key index.
    rates : float64[B]
        Requests per second of each key, finite, >= 0.
    tenants : list of str, length B, or None
        Tenant of each key ("" where a row has none); None when the format has no tenants.
    trace : Trace or None
        The requests, for formats that hold them.
    window_s : float
        Seconds of traffic over which the rates were measured; 0.0 where the file states rates.
    requests : int
        Requests in the file; 0 where the file states rates.
    rows : int
        Data rows, without header and blank lines.
    notices : list of Notice
        Repairs and warnings, each counted.
    parameters : dict
        Reader settings as JSON values; with them the same file gives the same result.
    source_name : str
        Name of the file.
    source_sha256 : str
        Hex digest of the bytes of the file as given, compressed or not.
    source_bytes : int
        Length of the file as given.
    prefix_tokens : int64[B] or None
        Shared prompt prefix of each key in tokens, where the file has it.
    """

    format: str
    key_names: list[str] = field(repr=False)
    rates: NDArray[np.float64] = field(repr=False)
    tenants: list[str] | None = field(repr=False)
    trace: Trace | None = field(repr=False)
    window_s: float
    requests: int
    rows: int
    notices: list[Notice]
    parameters: dict[str, Any]
    source_name: str
    source_sha256: str
    source_bytes: int
    prefix_tokens: NDArray[np.int64] | None = field(default=None, repr=False)


def dominant_key(weights: NDArray[np.float64] | NDArray[np.int64]) -> tuple[int, float] | None:
    """Return (index, share) of the key with more than half of the total, or None."""
    total = float(weights.sum())
    if total <= 0:
        return None
    heaviest = int(np.argmax(weights))
    share = float(weights[heaviest]) / total
    return (heaviest, share) if share > 0.5 else None
