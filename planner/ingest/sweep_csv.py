"""A measured load sweep of one destination, as CSV: figures of a load generator at each load, and trials of W.

A header names the columns, in any order. ``load_rps`` and ``p99_s`` are required. Optional at each load: ``p50_s``,
``p95_s``, ``ttft_p99_s`` (seconds), ``hit_rate``, ``busy_share`` (shares), ``requests`` (a whole number), and of a mean
iteration ``prefill_tokens``, ``decodes``, ``context_tokens``, ``iteration_s`` (input of a fit of engine constants).
``prefixes`` and ``kept_share`` are trials of W: a number of warm prefixes under cold traffic, and the share of their
tokens that stayed cached. A row holds a load, a trial of W, or both; an optional cell may be empty.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import BinaryIO

from planner.ingest.common import Notice, Notices
from planner.ingest.source import TextSource, open_text

__all__ = ["ITERATION", "ImportedSweep", "read_sweep"]

REQUIRED = ("load_rps", "p99_s")
SECONDS = ("p50_s", "p95_s", "p99_s", "ttft_p99_s", "iteration_s")
SHARES = ("hit_rate", "busy_share", "kept_share")
WHOLE = ("requests", "prefixes")
AMOUNTS = ("prefill_tokens", "decodes", "context_tokens")
WARM = ("prefixes", "kept_share")
# The columns of a mean iteration; one of them requires the others.
ITERATION = (*AMOUNTS, "iteration_s")
COLUMNS = (
    *("load_rps", "p50_s", "p95_s", "p99_s", "ttft_p99_s", "hit_rate", "requests", "busy_share"),
    *ITERATION,
    *WARM,
)
RISING = ("p50_s", "p95_s", "p99_s")
MAX_ROWS = 1_000
LARGEST = {"load_rps": 1e6, **dict.fromkeys(SECONDS, 86_400.0), **dict.fromkeys(SHARES, 1.0)}
MAX_VALUE = float(2**31 - 1)


@dataclass(frozen=True)
class ImportedSweep:
    """Figures of one destination from a file.

    Attributes
    ----------
    points : list of dict
        Figures of each load, by column, in rising order of ``load_rps``; empty cells are omitted.
    warm_points : list of dict
        ``prefixes`` and ``kept_share`` of each trial, in rising order of ``prefixes``.
    notices : list of Notice
        Repairs and warnings, each counted.
    source_name, source_sha256, source_bytes
        Name, hex digest and length of the file as given.
    """

    points: list[dict[str, float]] = field(repr=False)
    warm_points: list[dict[str, float]] = field(repr=False)
    notices: list[Notice]
    source_name: str
    source_sha256: str
    source_bytes: int


def read_sweep(
    file: str | os.PathLike[str] | BinaryIO, name: str | None = None, *, strict: bool = False, max_bytes: int = 2**24
) -> ImportedSweep:
    """Read a measured sweep from a path or a binary file; plain or gzip-compressed.

    Commas separate the columns. A header without commas may use semicolons or tabs (``delimiter``). Repairs (problems
    when ``strict``): loads or trials that do not rise are sorted (``unsorted-rows``). Warnings: ``extra-columns``,
    ``blank-lines``, ``empty-cells``.

    Parameters
    ----------
    file : path or binary file
        Read once from front to back; a file object is left open.
    name : str, optional
        File name to show in problems.
    strict : bool
        Allow no repair; every repair becomes a problem.
    max_bytes : int
        Limit on the decompressed length.

    Returns
    -------
    ImportedSweep
        Points and trials.

    Raises
    ------
    ImportProblem
        Naming file, row and field: ``empty``, ``wrong-columns``, ``wrong-row-width``, ``bad-csv``, ``not-a-number``,
        ``not-whole``, ``not-finite``, ``negative``, ``zero``, ``too-large``, ``too-many-rows``, ``duplicate-load``,
        ``duplicate-trial``, ``percentiles-fall``, ``incomplete``; and those of `open_text`.
    """
    with open_text(file, name, max_bytes=max_bytes) as source:
        return _read(source, strict=strict)


def _read(source: TextSource, *, strict: bool) -> ImportedSweep:
    notices = Notices(source.name, strict=strict)
    records = _records(source, notices)
    header = next(records, None)
    if header is None:
        raise source.problem("empty", "the file is empty.")
    columns = _columns(source, header, notices)
    loads: dict[float, tuple[int, dict[str, float]]] = {}
    trials: dict[float, tuple[int, dict[str, float]]] = {}
    for count, (row, cells) in enumerate(records, start=1):
        if count > MAX_ROWS:
            raise source.problem("too-many-rows", f"more than {MAX_ROWS:,} rows, the limit of a sweep.", row=row)
        if len(cells) != len(header[1]):
            message = f"{len(cells)} columns where the header has {len(header[1])}."
            raise source.problem("wrong-row-width", message, row=row, value=",".join(cells))
        values = _values(source, row, columns, cells, notices)
        trial = {name: values.pop(name) for name in WARM if name in values}
        if trial:
            _keep(source, trials, row, trial, WARM, "duplicate-trial")
        if values or not trial:
            _check_load(source, row, values)
            _keep(source, loads, row, values, REQUIRED, "duplicate-load")
    if not loads:
        raise source.problem("empty", "no row has a load.", row=header[0], field="load_rps")
    return ImportedSweep(
        points=_sorted(loads, "load_rps", notices),
        warm_points=_sorted(trials, "prefixes", notices),
        notices=source.notices + notices.as_list(),
        source_name=source.name,
        source_sha256=source.sha256,
        source_bytes=source.length,
    )


def _records(source: TextSource, notices: Notices) -> Iterator[tuple[int, list[str]]]:
    """Yield (first line, fields) of each record that is not blank."""
    first = source.first_line()
    delimiter = next((mark for mark in ",;\t" if mark in first), ",")
    if delimiter != ",":
        named = "semicolons" if delimiter == ";" else "tabs"
        notices.note("delimiter", f"Columns are separated by {named}.")
    reader = csv.reader(source, strict=True, delimiter=delimiter)
    while True:
        row = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as exc:
            message = f"not well-formed CSV ({exc}); a quote may be missing, or the line breaks be lone CRs."
            raise source.problem("bad-csv", message, row=row) from exc
        if any(cell.strip() for cell in cells):
            yield row, cells
        else:
            notices.note("blank-lines", "Blank lines were skipped.", row=row)


def _columns(source: TextSource, header: tuple[int, list[str]], notices: Notices) -> dict[str, int]:
    row, names = header[0], [cell.strip().lower() for cell in header[1]]
    found = ", ".join(repr(name)[:60] for name in names[:20])
    wanted = f"{', '.join(REQUIRED)} and optionally {', '.join(c for c in COLUMNS if c not in REQUIRED)}"
    for name in COLUMNS:
        if names.count(name) > 1:
            message = f"column {name} occurs {names.count(name)} times; found {found}."
            raise source.problem("wrong-columns", message, row=row, field=name)
    for name in REQUIRED:
        if name not in names:
            message = f"no column {name}; found {found}, wanted {wanted}."
            raise source.problem("wrong-columns", message, row=row, field=name, value=",".join(header[1]))
    for group in (ITERATION, WARM):
        there = [name for name in group if name in names]
        if there and len(there) < len(group):
            lacking = next(name for name in group if name not in names)
            message = f"column {there[0]} without {lacking}; {', '.join(group)} belong together."
            raise source.problem("wrong-columns", message, row=row, field=lacking)
    extra = [name for name in names if name not in COLUMNS]
    if extra:
        listed = ", ".join(repr(name)[:60] for name in extra[:20])
        notices.note("extra-columns", f"Columns not used: {listed}.", row=row, count=len(extra))
    return {name: names.index(name) for name in COLUMNS if name in names}


def _values(
    source: TextSource, row: int, columns: dict[str, int], cells: list[str], notices: Notices
) -> dict[str, float]:
    """Return the numbers of a row by column, without empty cells."""
    values = {name: _number(source, row, name, cells[at]) for name, at in columns.items() if cells[at].strip()}
    has_load, has_trial = any(name in values for name in COLUMNS if name not in WARM), any(n in values for n in WARM)
    for name in columns:
        # A row may hold a load or a trial alone; a gap within either gets a notice.
        if name not in values and name not in REQUIRED and (has_trial if name in WARM else has_load):
            notices.note("empty-cells", "Empty cells count as not measured.", row=row)
    return values


def _number(source: TextSource, row: int, name: str, text: str) -> float:
    shown = text.strip()
    try:
        value = float(shown)
    except ValueError:
        value = math.nan
    lowest = 0.0 if name in (*SHARES, *AMOUNTS) else None  # None: 0 itself is refused
    if "_" in shown or (math.isnan(value) and shown.lower().lstrip("+-") != "nan"):
        code, message = "not-a-number", f"{shown!r:.40} is not a number."
    elif not math.isfinite(value):
        code, message = "not-finite", f"{shown:.40} is not finite."
    elif value < 0:
        code, message = "negative", f"{shown:.40} is negative."
    elif value == 0 and lowest is None:
        code, message = "zero", f"{shown:.40}: expected above 0."
    elif value > LARGEST.get(name, MAX_VALUE):
        code, message = "too-large", f"{shown:.40}: expected at most {LARGEST.get(name, MAX_VALUE):,.0f}."
    elif name in WHOLE and value != int(value):
        code, message = "not-whole", f"{shown:.40} is not a whole number."
    elif name == "load_rps" and value < 1e-6:
        code, message = "zero", f"{shown:.40}: expected at least 1e-6 requests/s."
    else:
        return int(value) if name in WHOLE else value + 0.0  # turns -0.0 into 0.0
    raise source.problem(code, message, row=row, field=name, value=text)


def _check_load(source: TextSource, row: int, values: dict[str, float]) -> None:
    present = [name for name in RISING if name in values]
    for low, high in pairwise(present):
        if values[low] > values[high]:
            message = f"{high} = {values[high]:g} is below {low} = {values[low]:g}; percentiles rise."
            raise source.problem("percentiles-fall", message, row=row, field=high)
    given = [name for name in ITERATION if name in values]
    if given and len(given) < len(ITERATION):
        lacking = next(name for name in ITERATION if name not in values)
        raise source.problem("incomplete", f"{given[0]} without {lacking}.", row=row, field=lacking)


def _keep(
    source: TextSource,
    kept: dict[float, tuple[int, dict[str, float]]],
    row: int,
    values: dict[str, float],
    needed: tuple[str, ...],
    code: str,
) -> None:
    for name in needed:
        if name not in values:
            raise source.problem("incomplete", f"{name} is empty.", row=row, field=name)
    by = values[needed[0]]
    if by in kept:
        message = f"{needed[0]} {by:g} was given before, in row {kept[by][0]}."
        raise source.problem(code, message, row=row, field=needed[0], value=f"{by:g}")
    kept[by] = row, values


def _sorted(kept: dict[float, tuple[int, dict[str, float]]], by: str, notices: Notices) -> list[dict[str, float]]:
    order = sorted(kept)
    out_of_place = [kept[value][0] for value, there in zip(order, kept, strict=True) if value != there]
    if out_of_place:
        message = f"Rows were sorted by {by}."
        notices.repair("unsorted-rows", message, row=min(out_of_place), field=by, count=len(out_of_place))
    return [kept[value][1] for value in order]
