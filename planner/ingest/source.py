"""Open a text file of any size as lines: streamed, hashed, decompressed and decoded."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import os
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from planner.ingest.common import ImportProblem, Notice

__all__ = ["MAX_BYTES", "MAX_LINE_CHARS", "TextSource", "open_text"]

MAX_BYTES = 8 * 2**30
MAX_LINE_CHARS = 16 * 2**20
MAX_BLANK_LINES = 10_000
_CHUNK = 2**20
_PEEK_LINES = 1_000
_PEEK_CHARACTERS = 1 << 20
_MAGIC_BYTES = 16
_GZIP_MAGIC = b"\x1f\x8b"
_BOMS = (
    (codecs.BOM_UTF8, "utf-8", "UTF-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16 (little-endian)"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16 (big-endian)"),
)
# Only for the message about a refused file.
_BINARY_KINDS = (
    (b"PK\x03\x04", "a zip archive or spreadsheet"),
    (b"PAR1", "a Parquet file"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed"),
    (b"\xfd7zXZ\x00", "xz-compressed"),
    (b"BZh", "bzip2-compressed"),
    (_GZIP_MAGIC, "gzip-compressed twice"),
)


class _HashedReader:
    """Reader of raw bytes that counts and hashes them; `head` is the first chunk."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self.digest = hashlib.sha256()
        self.length = 0
        self.head = self._read_raw(_CHUNK)
        while len(self.head) < _MAGIC_BYTES and (more := self._read_raw(_CHUNK)):
            self.head += more  # pipes may give a byte at a time
        self._pending = self.head

    def _read_raw(self, size: int) -> bytes:
        chunk = self._raw.read(size)
        if not isinstance(chunk, bytes):
            raise TypeError("open_text needs a path or a file opened in binary mode")
        self.digest.update(chunk)
        self.length += len(chunk)
        return chunk

    def read(self, size: int = -1) -> bytes:
        # gzip asks for small pieces, and never for "all".
        if self._pending:
            size = len(self._pending) if size < 0 else size
            chunk, self._pending = self._pending[:size], self._pending[size:]
            return chunk
        return self._read_raw(_CHUNK if size < 0 else size)


class TextSource:
    """Lines of one file, read once from front to back; the line break stays on each line.

    Attributes
    ----------
    name : str
        Name of the file in messages.
    notices : list of Notice
        Notices about the encoding.
    sha256, length : str, int
        Hex digest and number of bytes of the file as given; complete after the last line.
    """

    def __init__(self, raw: BinaryIO, name: str, max_bytes: int) -> None:
        self.name = name
        self.notices: list[Notice] = []
        self._max_bytes = max_bytes
        self._peeked: deque[str] = deque()
        self._reader = _HashedReader(raw)
        head = self._reader.head
        self._gzipped = head.startswith(_GZIP_MAGIC)
        if name.lower().endswith(".gz") and head and not self._gzipped:
            message = "the name ends in .gz, but the content is not gzip-compressed."
            raise self.problem("not-gzip", message, value=head[:16])
        self._lines = self._few_blanks(self._split(self._decoded()))

    @property
    def sha256(self) -> str:
        """Hex digest of the bytes read so far."""
        return self._reader.digest.hexdigest()

    @property
    def length(self) -> int:
        """Number of bytes read so far."""
        return self._reader.length

    def problem(
        self, code: str, message: str, *, row: int | None = None, field: str | None = None, value: object = None
    ) -> ImportProblem:
        """Return (not raise) a problem of this file.

        Parameters
        ----------
        code, message : str
            Stable name of the kind of fault, and one sentence for people.
        row : int, optional
            Line number in the decompressed file, from 1.
        field : str, optional
            Column or JSON field.
        value : object, optional
            The bad value.

        Returns
        -------
        ImportProblem
            The problem with the name of this file.
        """
        return ImportProblem(code, message, file=self.name, row=row, field=field, value=value)

    def __iter__(self) -> Iterator[str]:
        while self._peeked:
            yield self._peeked.popleft()
        yield from self._lines

    def first_line(self) -> str:
        """Return the first line that is not blank without consuming it; "" without such a line near the front."""
        held = 0
        while len(self._peeked) < _PEEK_LINES and held < _PEEK_CHARACTERS:
            line = next(self._lines, None)
            if line is None:
                return ""
            self._peeked.append(line)
            if not line.isspace():
                return line
            held += len(line)
        return ""

    def _few_blanks(self, lines: Iterator[str]) -> Iterator[str]:
        """Yield the lines; refuse long runs of blank lines, which a small compressed file can hold."""
        blank = 0
        for row, line in enumerate(lines, start=1):
            blank = blank + 1 if line.isspace() else 0
            if blank > MAX_BLANK_LINES:
                raise self.problem("blank-lines", f"more than {MAX_BLANK_LINES:,} blank lines in a row.", row=row)
            yield line

    def _chunks(self) -> Iterator[bytes]:
        stream: _HashedReader | gzip.GzipFile = self._reader
        if self._gzipped:
            stream = gzip.GzipFile(fileobj=cast(BinaryIO, self._reader), mode="rb")
        total = 0
        try:
            while chunk := stream.read(_CHUNK):
                total += len(chunk)
                if total > self._max_bytes:
                    unpacked = " when decompressed" if self._gzipped else ""
                    raise self.problem("too-large", f"over {self._max_bytes:,} bytes{unpacked}, the limit set.")
                yield chunk
        except EOFError as exc:
            raise self.problem("corrupt-gzip", "the gzip data ends early; the file is cut off.") from exc
        except (zlib.error, gzip.BadGzipFile) as exc:
            raise self.problem("corrupt-gzip", f"the gzip data is damaged ({exc}).") from exc

    def _decoded(self) -> Iterator[str]:
        decoder: codecs.IncrementalDecoder | None = None
        encoding = "utf-8"
        row = 1  # of the first character still to come
        for chunk in self._with_end(self._chunks()):
            if decoder is None:
                encoding, chunk = self._choose_encoding(chunk)
                decoder = codecs.getincrementaldecoder(encoding)()
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as exc:
                row += exc.object[: exc.start].decode(encoding, "ignore").count("\n")
                bad = exc.object[exc.start : exc.start + 16]
                label = encoding.upper().removesuffix("-LE").removesuffix("-BE")
                raise self.problem("not-text", f"not {label} text.", row=row, value=bad) from exc
            nul = text.find("\0")
            if nul >= 0:
                message = "a NUL character: this is a binary file, not text."
                raise self.problem("not-text", message, row=row + text.count("\n", 0, nul))
            row += text.count("\n")
            yield text

    @staticmethod
    def _with_end(chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Add an empty last chunk, which tells the decoder that the input ends."""
        yield from chunks
        yield b""

    def _choose_encoding(self, head: bytes) -> tuple[str, bytes]:
        for magic, kind in _BINARY_KINDS:
            if head.startswith(magic):
                raise self.problem("not-text", f"the content is {kind}, not text.", row=1, value=head[:16])
        for bom, encoding, label in _BOMS:
            if head.startswith(bom):
                if encoding == "utf-8":
                    message = "A UTF-8 byte order mark at the front was removed."
                    self.notices.append(Notice("byte-order-mark", 1, message, 1))
                else:
                    message = f"{label} text was converted, by its byte order mark."
                    self.notices.append(Notice("utf-16", 1, message, 1))
                return encoding, head[len(bom) :]
        return "utf-8", head

    def _split(self, texts: Iterator[str]) -> Iterator[str]:
        # Only "\n" ends a line: str.splitlines would also break at U+2028 and form feeds inside values.
        row, carry = 0, ""
        for text in texts:
            *whole, carry = (carry + text).split("\n")
            for line in whole:
                row += 1
                if len(line) > MAX_LINE_CHARS:
                    raise self._line_too_long(row, line)
                yield line + "\n"
            if len(carry) > MAX_LINE_CHARS:
                raise self._line_too_long(row + 1, carry)
        if carry:
            yield carry

    def _line_too_long(self, row: int, line: str) -> ImportProblem:
        message = f"a line of over {MAX_LINE_CHARS:,} characters."
        return self.problem("line-too-long", message, row=row, value=line[:100])


@contextmanager
def open_text(
    file: str | os.PathLike[str] | BinaryIO, name: str | None = None, *, max_bytes: int = MAX_BYTES
) -> Iterator[TextSource]:
    """Open a file as lines of text, with a few MiB of memory for any size of the file.

    The first two bytes identify gzip. UTF-8 is expected; a byte order mark is removed, UTF-16 with a byte order mark is
    converted, each with a notice.

    Parameters
    ----------
    file : path or binary file
        A file object is read from its current position and left open.
    name : str, optional
        Name to show; by default the path's last part, or the object's ``name``.
    max_bytes : int
        Limit on the decompressed length, against decompression bombs.

    Yields
    ------
    TextSource
        The lines of the file.

    Raises
    ------
    ImportProblem
        Here or while lines are read: ``cannot-read``, ``not-gzip``, ``corrupt-gzip``, ``too-large``,
        ``not-text``, ``line-too-long`` (16 Mi characters).
    """
    if isinstance(file, str | os.PathLike):
        path = Path(file)
        shown = name or path.name
        try:
            opened = path.open("rb")
        except OSError as exc:
            raise ImportProblem("cannot-read", f"{exc.strerror or exc}.", file=shown) from exc
        with opened:
            yield TextSource(opened, shown, max_bytes)
    else:
        own = getattr(file, "name", None)
        yield TextSource(file, name or (Path(own).name if isinstance(own, str) else "upload"), max_bytes)
