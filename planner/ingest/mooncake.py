"""``mooncake``: request traces in the JSON Lines form of the Mooncake (FAST'25) releases.

One object a line: ``timestamp`` (milliseconds), ``input_length`` and ``output_length`` (tokens) and
``hash_ids``, the chained ids of the prompt's blocks: equal ids mean equal prefixes up to that block.

The routing key of a request is its first ``key_depth`` blocks; a prompt with fewer blocks uses all it has.
Its name joins their ids, ``b0-b17``. Key indices follow first appearance in the file.
"""

from __future__ import annotations

import json
import math
from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.ingest.common import MAX_KEY_CHARS, MAX_TOKENS, ImportedWorkload, Notices, ReadOptions, dominant_key
from planner.ingest.source import TextSource
from planner.simulation.trace import Blocks, Trace

__all__ = ["NAME", "read", "recognise"]

NAME = "mooncake"
FIELDS = ("timestamp", "input_length", "output_length", "hash_ids")
# Milliseconds beyond this are no longer exact in a float64 (and lie 285,000 years ahead).
_MAX_STAMP = 2**53


class _RepeatedField(ValueError):
    """The same name twice in one JSON object."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedField(next(name for name in names if names.count(name) > 1))
    return record


def recognise(first_line: str) -> bool:
    """Return whether the first line looks like a request of this format (one of its fields is enough)."""
    if not first_line.lstrip().startswith("{"):
        return False
    try:
        record = json.loads(first_line)
    except (ValueError, RecursionError):
        return True  # the reader reports the fault with its place
    return any(field in record for field in FIELDS)


def read(source: TextSource, options: ReadOptions) -> ImportedWorkload:
    """Read a trace; memory grows with requests and blocks (8 bytes a block), which are limited.

    ``rates`` are requests of the key / ``window_s``, and ``window_s`` is last arrival - first arrival. Arrivals count
    from the first one, whose timestamp is ``parameters["origin_ms"]``.

    Repairs (problems when ``options.strict``): arrivals out of order are sorted, equal ones in file order
    (``unsorted``); an ``output_length`` of 0 counts as 1, since an engine always produces a first token
    (``zero-output``). Warnings: ``blank-lines``, ``extra-fields``, ``duplicate-rows`` (kept),
    ``not-chained``, ``one-key-dominates``.

    Raises
    ------
    ImportProblem
        ``empty``, ``not-json``, ``missing-field``, ``repeated-field``, ``not-a-number``, ``not-whole``,
        ``not-finite``, ``negative``, ``too-large``, ``zero-length`` (a prompt of no tokens has no key),
        ``does-not-tile``, ``key-too-long``, ``too-many-keys``, ``too-many-requests``, ``too-many-blocks``,
        ``zero-window`` (all requests at one instant: no rate can be measured).
    """
    return _Reader(source, options).read()


class _Reader:
    def __init__(self, source: TextSource, options: ReadOptions) -> None:
        self.source = source
        self.options = options
        self.notices = Notices(source.name, strict=options.strict)
        self.decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=self._constant)
        self.constants: list[str] = []  # bare NaN and Infinity in the current line
        self.key_of: dict[tuple[int, ...], int] = {}
        self.row_of, self.line_hash = array("q"), array("q")
        self.stamp_ms = array("d")
        self.key, self.prompt, self.output = array("q"), array("q"), array("q")
        self.offsets, self.ids = array("q", [0]), array("q")

    def read(self) -> ImportedWorkload:
        for row, line in enumerate(self.source, 1):
            if line.isspace():
                self.notices.note("blank-lines", "Blank lines were skipped.", row=row)
                continue
            self._add(row, self._parse(row, line))
            self.line_hash.append(hash(line.strip()))
        if not self.row_of:
            raise self.source.problem("empty", "the file holds no requests.")
        return self._result()

    def _constant(self, word: str) -> float:
        self.constants.append(word)
        return float(word)

    def _parse(self, row: int, line: str) -> dict[str, Any]:
        try:
            record = self.decoder.decode(line)
        except _RepeatedField as exc:
            message = "the field occurs twice in one object."
            raise self.source.problem("repeated-field", message, row=row, field=str(exc), value=line) from exc
        except (ValueError, RecursionError) as exc:
            reason = exc.msg if isinstance(exc, json.JSONDecodeError) else type(exc).__name__
            raise self.source.problem("not-json", f"not valid JSON ({reason}).", row=row, value=line) from exc
        if not isinstance(record, dict):
            message = f"a JSON object is expected in every line, found a {type(record).__name__}."
            raise self.source.problem("not-json", message, row=row, value=line)
        if self.constants:
            word = self.constants[0]
            field = next((name for name, value in record.items() if _holds_non_finite(value)), None)
            message = f"{word} is not a finite number, and not valid JSON either."
            raise self.source.problem("not-finite", message, row=row, field=field, value=word)
        return record

    def _add(self, row: int, record: dict[str, Any]) -> None:
        try:
            stamp, prompt, output, ids = (record[name] for name in FIELDS)
        except KeyError as exc:
            field = str(exc.args[0])
            found = ", ".join(repr(name)[:60] for name in list(record)[:20])
            message = f"the field is missing; found {found or 'none'}."
            raise self.source.problem("missing-field", message, row=row, field=field) from exc
        if len(record) > len(FIELDS):
            extra = ", ".join(repr(name)[:60] for name in record if name not in FIELDS)[:500]
            self.notices.note("extra-fields", f"Fields not used: {extra}.", row=row)
        self._check_stamp(row, stamp)
        self._check_tokens(row, "input_length", prompt)
        self._check_tokens(row, "output_length", output)
        if prompt == 0:
            message = "a prompt of no tokens has no prefix to route by."
            raise self.source.problem("zero-length", message, row=row, field="input_length", value=prompt)
        if output == 0:
            message = "Requests without output count as one output token."
            self.notices.repair("zero-output", message, row=row, field="output_length")
            output = 1
        self._check_ids(row, prompt, ids)
        if len(self.row_of) >= self.options.max_requests:
            message = f"more than {self.options.max_requests:,} requests, the limit set."
            raise self.source.problem("too-many-requests", message, row=row)
        self.row_of.append(row)
        self.stamp_ms.append(stamp)
        self.prompt.append(prompt)
        self.output.append(output)
        self.key.append(self._key_index(row, ids))
        self.offsets.append(len(self.ids))

    def _check_stamp(self, row: int, value: Any) -> None:
        if type(value) is not int and type(value) is not float:
            code, message = "not-a-number", f"a number of milliseconds is expected, found {_kind(value)}."
        elif type(value) is float and not math.isfinite(value):
            code, message = "not-finite", "the timestamp is not finite."
        elif value < 0:
            code, message = "negative", "the timestamp is negative."
        elif value > _MAX_STAMP:
            code, message = "too-large", f"the timestamp is beyond {_MAX_STAMP:,} ms."
        else:
            return
        raise self.source.problem(code, message, row=row, field="timestamp", value=_shown(value))

    def _check_tokens(self, row: int, field: str, value: Any) -> None:
        if type(value) is not int:
            number = type(value) is float
            found = "a fraction" if number else _kind(value)
            code = "not-whole" if number else "not-a-number"
            message = f"a whole number of tokens is expected, found {found}."
        elif value < 0:
            code, message = "negative", "the number of tokens is negative."
        elif value > MAX_TOKENS:
            code, message = "too-large", f"over {MAX_TOKENS:,} tokens."
        else:
            return
        raise self.source.problem(code, message, row=row, field=field, value=_shown(value))

    def _check_ids(self, row: int, prompt: int, ids: Any) -> None:
        """Check the block ids of one prompt and append them."""
        size = self.options.block_tokens
        if type(ids) is not list:
            code, message = "not-whole", f"a list of block ids is expected, found {_kind(ids)}."
        elif set(map(type, ids)) - {int}:
            odd = next(value for value in ids if type(value) is not int)
            code, message = "not-whole", f"block ids are whole numbers, found {_kind(odd)}."
        elif len(ids) != -(-prompt // size):
            code = "does-not-tile"
            message = (
                f"{len(ids):,} block ids for {prompt:,} tokens, {-(-prompt // size):,} expected with blocks of "
                f"{size:,} tokens (block_tokens sets the block size)."
            )
        elif min(ids) < 0:
            code, message = "negative", "a block id is negative."
        elif max(ids) >= 2**63:
            code, message = "too-large", "a block id does not fit 63 bits."
        elif len(self.ids) + len(ids) > self.options.max_blocks:
            code, message = "too-many-blocks", f"more than {self.options.max_blocks:,} blocks, the limit set."
        else:
            self.ids.fromlist(ids)
            return
        raise self.source.problem(code, message, row=row, field="hash_ids", value=_shown(ids))

    def _key_index(self, row: int, ids: list[int]) -> int:
        head = tuple(ids[: self.options.key_depth])
        index = self.key_of.setdefault(head, len(self.key_of))
        if index == len(self.key_of) - 1:  # new, or the last one again
            if index >= self.options.max_keys:
                message = f"more than {self.options.max_keys:,} keys, the limit set."
                raise self.source.problem("too-many-keys", message, row=row, field="hash_ids")
            if len(head) > 20 and len(_key_name(head)) > MAX_KEY_CHARS:
                message = f"the key's name is over {MAX_KEY_CHARS} characters; use a smaller key depth."
                raise self.source.problem("key-too-long", message, row=row, field="hash_ids", value=_key_name(head))
        return index

    def _result(self) -> ImportedWorkload:
        stamps = np.array(self.stamp_ms, dtype=np.float64)
        first, last = float(stamps.min()), float(stamps.max())
        window_s = (last - first) / 1000.0
        if window_s <= 0:
            message = f"all {len(stamps):,} requests arrive at one instant, so no rate can be measured."
            raise self.source.problem("zero-window", message, field="timestamp", value=first)
        rows = np.frombuffer(self.row_of, dtype=np.int64)
        key = np.array(self.key, dtype=np.int64)
        counts = np.bincount(key, minlength=len(self.key_of))
        names = [_key_name(head) for head in self.key_of]
        blocks = Blocks(np.array(self.offsets, dtype=np.int64), np.array(self.ids, dtype=np.int64))
        self._note_duplicates(rows)
        self._note_broken_chains(blocks, rows)
        self._note_dominant_key(counts, names)
        order = self._order(stamps, rows)
        trace = Trace(
            arrival_s=(stamps[order] - first) / 1000.0,
            key=key[order],
            blocks=_reorder(blocks, order),
            prompt_tokens=np.array(self.prompt, dtype=np.int64)[order],
            output_tokens=np.array(self.output, dtype=np.int64)[order],
            block_tokens=self.options.block_tokens,
            key_names=names,
        )
        return ImportedWorkload(
            format=NAME,
            key_names=names,
            rates=counts / window_s,
            tenants=None,
            trace=trace,
            window_s=window_s,
            requests=len(trace),
            rows=len(trace),
            notices=self.source.notices + self.notices.as_list(),
            parameters={
                "key_depth": self.options.key_depth,
                "block_tokens": self.options.block_tokens,
                "strict": self.options.strict,
                "origin_ms": first,
            },
            source_name=self.source.name,
            source_sha256=self.source.sha256,
            source_bytes=self.source.length,
        )

    def _order(self, stamps: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.int64] | slice:
        back = np.flatnonzero(np.diff(stamps) < 0) + 1
        if not len(back):
            return slice(None)
        message = "Requests that arrive before the row above them; all were sorted by arrival, ties in file order."
        self.notices.repair("unsorted", message, row=int(rows[back[0]]), field="timestamp", count=len(back))
        return np.argsort(stamps, kind="stable")

    def _note_duplicates(self, rows: NDArray[np.int64]) -> None:
        _, first_index = np.unique(np.frombuffer(self.line_hash, dtype=np.int64), return_index=True)
        repeated = np.ones(len(rows), dtype=np.bool_)
        repeated[first_index] = False
        if repeated.any():
            message = "Rows that repeat an earlier row exactly; kept, since two equal requests can arrive together."
            row = int(rows[np.argmax(repeated)])
            self.notices.note("duplicate-rows", message, row=row, count=int(repeated.sum()))

    def _note_broken_chains(self, blocks: Blocks, rows: NDArray[np.int64]) -> None:
        """Warn of block ids that follow different blocks: equal ids then do not mean equal prefixes."""
        offsets, ids = blocks
        before = np.empty_like(ids)
        before[1:] = ids[:-1]
        before[offsets[:-1]] = -1
        place = ids
        if int(ids.max()) > 4 * len(ids):  # sparse ids: number them densely, so that the table stays small
            place = np.unique(ids, return_inverse=True)[1]
        usual = np.empty(int(place.max()) + 1, dtype=np.int64)
        usual[place] = before
        broken = usual[place] != before
        if broken.any():
            request = int(np.searchsorted(offsets, int(np.argmax(broken)), side="right")) - 1
            message = (
                "Block ids that follow different blocks in different prompts, so equal ids do not mean equal "
                "prefixes; replayed hit rates may come out too high."
            )
            count = len(np.unique(ids[broken]))
            self.notices.note("not-chained", message, row=int(rows[request]), count=count)

    def _note_dominant_key(self, counts: NDArray[np.int64], names: list[str]) -> None:
        dominant = dominant_key(counts)
        if dominant:
            index, share = dominant
            depth = self.options.key_depth
            message = (
                f"One key, {names[index]:.100}, carries {share:.1%} of the requests at key depth {depth}; "
                f"try a larger key depth, {depth + 1} or more."
            )
            self.notices.note("one-key-dominates", message, count=int(counts[index]))


def _key_name(head: tuple[int, ...]) -> str:
    return "-".join([f"b{block}" for block in head])


def _kind(value: Any) -> str:
    kinds = {str: "text", bool: "true or false", type(None): "null", list: "a list", dict: "an object"}
    return kinds.get(type(value), "a fraction" if type(value) is float else "a number")


def _shown(value: Any) -> Any:
    return "null" if value is None else value


def _holds_non_finite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list) and any(_holds_non_finite(item) for item in value)


def _reorder(blocks: Blocks, order: NDArray[np.int64] | slice) -> Blocks:
    if isinstance(order, slice):
        return blocks
    starts, lengths = blocks.offsets[:-1][order], np.diff(blocks.offsets)[order]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    take = np.repeat(starts - offsets[:-1], lengths) + np.arange(len(blocks.ids))
    return Blocks(offsets, blocks.ids[take])
