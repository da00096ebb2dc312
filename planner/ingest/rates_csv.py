"""``rates-csv``: a table of keys and their rates, the minimal input of a plan.

A header names the columns, in any order: ``key`` and ``rate`` (requests per second, >= 0), optionally
``tenant`` and ``prefix_tokens`` (whole tokens of the prompt prefix that the key's requests share).
"""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterator

import numpy as np

from planner.ingest.common import MAX_KEY_CHARS, MAX_TOKENS, ImportedWorkload, Notices, ReadOptions, dominant_key
from planner.ingest.source import TextSource

__all__ = ["NAME", "read", "recognise"]

NAME = "rates-csv"
REQUIRED = ("key", "rate")
OPTIONAL = ("tenant", "prefix_tokens")


def recognise(first_line: str) -> bool:
    """Return whether the first line looks like a header of this format (one required column is enough)."""
    try:
        columns = next(csv.reader([first_line]), [])
    except csv.Error:
        return False
    return any(_plain(column) in REQUIRED for column in columns)


def read(source: TextSource, options: ReadOptions) -> ImportedWorkload:
    """Read the whole table; memory grows only with the number of keys.

    Repairs (problems when ``options.strict``): an empty tenant stays "" (``empty-tenant``). Warnings:
    ``extra-columns``, ``blank-lines``, ``one-key-dominates``, ``no-traffic``.

    Raises
    ------
    ImportProblem
        ``empty``, ``wrong-columns``, ``wrong-row-width``, ``bad-csv``, ``key-too-long``, ``duplicate-key``,
        ``too-many-keys``, ``not-a-number``, ``not-whole``, ``not-finite``, ``negative``, ``too-large``.
    """
    notices = Notices(source.name, strict=options.strict)
    records = _records(source, notices)
    header = next(records, None)
    if header is None:
        raise source.problem("empty", "the file is empty.")
    columns = _columns(source, header, notices)
    width = len(header[1])
    at_key, at_rate = columns["key"], columns["rate"]
    at_tenant, at_prefix = columns.get("tenant"), columns.get("prefix_tokens")

    names: list[str] = []
    seen: set[str] = set()
    row_of, rates, prefixes = array("q"), array("d"), array("q")
    tenants: list[str] = []
    known_tenants: dict[str, str] = {}  # one string object for each tenant, not one for each row
    for row, fields in records:
        if len(fields) != width:
            message = f"{len(fields)} columns where the header has {width}."
            raise source.problem("wrong-row-width", message, row=row, value=",".join(fields))
        key = fields[at_key]
        if key in seen:
            first = row_of[names.index(key)]
            message = f"key {key!r:.100} was given before, in row {first}."
            raise source.problem("duplicate-key", message, row=row, field="key", value=key)
        _check_key(source, row, key)
        if len(names) >= options.max_keys:
            message = f"more than {options.max_keys:,} keys, the limit set."
            raise source.problem("too-many-keys", message, row=row, field="key")
        seen.add(key)
        names.append(key)
        row_of.append(row)
        rates.append(_rate(source, row, fields[at_rate]))
        if at_tenant is not None:
            tenant = _tenant(source, row, fields[at_tenant], notices)
            tenants.append(known_tenants.setdefault(tenant, tenant))
        if at_prefix is not None:
            prefixes.append(_tokens(source, row, fields[at_prefix]))
    if not names:
        raise source.problem("empty", "only a header, no keys.", row=header[0])

    values = np.array(rates, dtype=np.float64)
    _check_total(source, values, names, notices)
    return ImportedWorkload(
        format=NAME,
        key_names=names,
        rates=values,
        tenants=tenants if at_tenant is not None else None,
        trace=None,
        window_s=0.0,
        requests=0,
        rows=len(names),
        notices=source.notices + notices.as_list(),
        parameters={"strict": options.strict},
        source_name=source.name,
        source_sha256=source.sha256,
        source_bytes=source.length,
        prefix_tokens=np.array(prefixes, dtype=np.int64) if at_prefix is not None else None,
    )


def _plain(column: str) -> str:
    return column.strip().lower()


def _records(source: TextSource, notices: Notices) -> Iterator[tuple[int, list[str]]]:
    """Yield (first line, fields) of each record that is not blank."""
    reader = csv.reader(source, strict=True)
    while True:
        row = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as exc:
            message = f"not well-formed CSV ({exc}); a quote may be missing, or the line breaks be lone CRs."
            raise source.problem("bad-csv", message, row=row) from exc
        if len(fields) > 1 or "".join(fields).strip():
            yield row, fields
        else:
            notices.note("blank-lines", "Blank lines were skipped.", row=row)


def _columns(source: TextSource, header: tuple[int, list[str]], notices: Notices) -> dict[str, int]:
    row, names = header[0], [_plain(column) for column in header[1]]
    found = ", ".join(repr(name)[:60] for name in names[:20])
    wanted = "key, rate and optionally tenant, prefix_tokens"
    for name in REQUIRED + OPTIONAL:
        if names.count(name) > 1:
            message = f"column {name} occurs {names.count(name)} times; found {found}, wanted {wanted}."
            raise source.problem("wrong-columns", message, row=row, field=name)
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        message = f"no column {' and no column '.join(missing)}; found {found}, wanted {wanted} (comma-separated)."
        raise source.problem("wrong-columns", message, row=row, field=missing[0], value=",".join(header[1]))
    extra = [name for name in names if name not in REQUIRED + OPTIONAL]
    if extra:
        listed = ", ".join(repr(name)[:60] for name in extra[:20])
        notices.note("extra-columns", f"Columns not used: {listed}.", row=row, count=len(extra))
    return {name: names.index(name) for name in REQUIRED + OPTIONAL if name in names}


def _check_key(source: TextSource, row: int, key: str) -> None:
    if not key or key.isspace():
        raise source.problem("empty", "the key is empty.", row=row, field="key")
    if len(key) > MAX_KEY_CHARS:
        message = f"a key of {len(key):,} characters; at most {MAX_KEY_CHARS} are allowed."
        raise source.problem("key-too-long", message, row=row, field="key", value=key)


def _rate(source: TextSource, row: int, text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if 0.0 <= rate < math.inf and "_" not in text:
        return rate + 0.0  # turns -0.0 into 0.0
    shown = text.strip()
    if not shown:
        code, message = "empty", "the rate is empty."
    elif rate < 0 and rate != -math.inf:
        code, message = "negative", f"a negative rate, {shown:.40}."
    elif math.isinf(rate) or shown.lower().lstrip("+-") == "nan":
        code, message = "not-finite", f"{shown:.40} is not a finite rate."
    else:
        code, message = "not-a-number", f"{shown!r:.40} is not a number (requests per second)."
    raise source.problem(code, message, row=row, field="rate", value=text)


def _tenant(source: TextSource, row: int, text: str, notices: Notices) -> str:
    tenant = text.strip()
    if not tenant:
        message = "Keys without a tenant; they count as one unnamed tenant."
        notices.repair("empty-tenant", message, row=row, field="tenant")
    elif len(tenant) > MAX_KEY_CHARS:
        message = f"a tenant of {len(tenant):,} characters; at most {MAX_KEY_CHARS} are allowed."
        raise source.problem("key-too-long", message, row=row, field="tenant", value=tenant)
    return tenant


def _tokens(source: TextSource, row: int, text: str) -> int:
    shown = text.strip()
    digits = shown.removeprefix("-")
    if not shown:
        code, message = "empty", "prefix_tokens is empty."
    elif not (digits.isascii() and digits.isdigit()):
        code, message = "not-whole", f"{shown!r:.40} is not a whole number of tokens."
    elif digits != shown:
        code, message = "negative", f"a negative number of tokens, {shown:.40}."
    elif len(shown.lstrip("0")) > 10 or int(shown) > MAX_TOKENS:
        code, message = "too-large", f"{shown:.40} tokens; at most {MAX_TOKENS:,} are allowed."
    else:
        return int(shown)
    raise source.problem(code, message, row=row, field="prefix_tokens", value=text)


def _check_total(
    source: TextSource, rates: np.ndarray[tuple[int], np.dtype[np.float64]], names: list[str], notices: Notices
) -> None:
    with np.errstate(over="ignore"):
        total = float(rates.sum())
    if not math.isfinite(total):
        raise source.problem("not-finite", "the rates add up to more than a float holds.", field="rate")
    if total == 0:
        notices.note("no-traffic", "Every rate is zero: there is nothing to plan.", count=len(names))
    dominant = dominant_key(rates)
    if dominant:
        index, share = dominant
        message = f"One key, {names[index]!r:.100}, carries {share:.1%} of the requests; no placement can spread it."
        notices.note("one-key-dominates", message)
