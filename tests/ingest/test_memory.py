"""Large files stream: memory follows the number of keys, not the number of bytes."""

import subprocess
import sys

import pytest

from tests.ingest.support import ROOT

# Reads a generated stream that is never held anywhere, in a process of its own, and prints bytes and peak growth.
PROGRAM = """
import io, resource, sys, zlib
import planner.ingest.mooncake
from planner.ingest import ImportProblem, read_workload

class Stream(io.RawIOBase):
    def __init__(self, pieces):
        self.pieces, self.rest, self.total = pieces, b"", 0
    def read(self, size=-1):
        if not self.rest:
            self.rest = next(self.pieces, b"")
        out, self.rest = self.rest[:size], self.rest[size:]
        self.total += len(out)
        return out

def wide_csv():
    yield b"key,rate,note\\n"
    for i in range(2_000):
        yield b"k%d,1,%s\\n" % (i, b"x" * 100_000)

def wide_trace():
    for i in range(2_000):
        head = b'{"timestamp": %d, "input_length": 5, "output_length": 5, "hash_ids": [%d], "note": "' % (i, i)
        yield head + b"x" * 100_000 + b'"}\\n'

def blank():
    yield b"key,rate\\na,1\\n"
    for i in range(400):
        yield b" \\n" * 5_000 + b"k%d,1\\n" % i

def packed(pieces):
    squeeze = zlib.compressobj(1, wbits=31)
    for piece in pieces:
        yield squeeze.compress(piece)
    yield squeeze.flush()

def nonempty(pieces):
    return (piece for piece in pieces if piece)

kind = sys.argv[1]
made = {"csv": wide_csv, "trace": wide_trace, "blank": blank}[kind.removesuffix(".gz")]()
stream = Stream(nonempty(packed(made)) if kind.endswith(".gz") else made)
read_workload(io.BytesIO(b"key,rate\\na,1\\n"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
workload = read_workload(stream, name="stream")
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(workload.rows, stream.total, after - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read in KiB, as Linux gives it")
@pytest.mark.parametrize(
    ("kind", "rows", "at_least"),
    [("csv", 2_000, 200e6), ("csv.gz", 2_000, 0.5e6), ("trace", 2_000, 200e6), ("blank", 401, 4e6)],
)
def test_a_stream_of_many_megabytes_takes_few_megabytes(kind, rows, at_least):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    read, length, grown_kib = map(int, done.stdout.split())
    assert read == rows
    assert length > at_least
    assert grown_kib < 40_000
