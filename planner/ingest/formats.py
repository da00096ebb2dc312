"""The known formats, their detection, and one function that reads all of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import BinaryIO, NamedTuple

from planner.ingest import mooncake, rates_csv
from planner.ingest.common import ImportedWorkload, ImportProblem, ReadOptions, excerpt
from planner.ingest.source import MAX_BYTES, TextSource, open_text

__all__ = ["AUTO", "FORMATS", "Format", "detect_format", "read_workload"]

AUTO = "auto"
_DEFAULTS = ReadOptions()


class Format(NamedTuple):
    """One format: its content, a test of its first line, and its reader."""

    holds: str
    recognise: Callable[[str], bool]
    read: Callable[[TextSource, ReadOptions], ImportedWorkload]


# A new format is one module and one line here. `auto` tests in this order.
FORMATS: dict[str, Format] = {
    mooncake.NAME: Format(
        "JSON Lines of timestamp, input_length, output_length, hash_ids", mooncake.recognise, mooncake.read
    ),
    rates_csv.NAME: Format(
        "CSV with columns key, rate and, where known, tenant, prefix_tokens", rates_csv.recognise, rates_csv.read
    ),
}


def detect_format(name: str, head: str) -> str:
    """Return the format of a file from its first line that is not blank; the name appears in messages only.

    Raises
    ------
    ImportProblem
        ``empty`` or ``unknown-format``, which lists the known ones.
    """
    if not head.strip():
        raise ImportProblem("empty", "the file is empty, or its first lines are blank.", file=name)
    for known, form in FORMATS.items():
        if form.recognise(head):
            return known
    message = f"no known format has a first line like {excerpt(head.strip())!r}; known are {_listed()}."
    raise ImportProblem("unknown-format", message, file=name, row=1, value=head)


def read_workload(
    file: str | os.PathLike[str] | BinaryIO,
    *,
    name: str | None = None,
    format: str = AUTO,
    key_depth: int = _DEFAULTS.key_depth,
    block_tokens: int = _DEFAULTS.block_tokens,
    strict: bool = False,
    max_keys: int = _DEFAULTS.max_keys,
    max_bytes: int = MAX_BYTES,
    max_requests: int = _DEFAULTS.max_requests,
    max_blocks: int = _DEFAULTS.max_blocks,
) -> ImportedWorkload:
    """Read a workload from a file of any known format, plain or gzip-compressed.

    Parameters
    ----------
    file : path or binary file
        Read once from front to back; a file object is left open.
    name : str, optional
        File name to show in problems.
    format : str
        A name in ``FORMATS``, or ``auto`` to detect it from the first line.
    key_depth : int
        For traces with prompt blocks: number of leading blocks in the routing key.
    block_tokens : int
        For traces with prompt blocks: tokens in a block.
    strict : bool
        Allow no repair; every repair becomes a problem.
    max_keys, max_bytes, max_requests, max_blocks : int
        Limits that bound memory and time; ``max_bytes`` counts decompressed bytes.

    Returns
    -------
    ImportedWorkload
        Keys, rates and, where the file has them, requests.

    Raises
    ------
    ImportProblem
        For every fault of the file; names file, row and field.
    ValueError
        For a setting that is not a positive whole number.
    """
    options = ReadOptions(
        key_depth=key_depth,
        block_tokens=block_tokens,
        strict=strict,
        max_keys=max_keys,
        max_requests=max_requests,
        max_blocks=max_blocks,
    )
    with open_text(file, name, max_bytes=max_bytes) as source:
        if format == AUTO:
            format = detect_format(source.name, source.first_line())
        if format not in FORMATS:
            message = f"format {format!r:.60} is not known; known are {_listed()}."
            raise source.problem("unknown-format", message, value=format)
        return FORMATS[format].read(source, options)


def _listed() -> str:
    return "; ".join(f"{name} ({form.holds})" for name, form in FORMATS.items())
