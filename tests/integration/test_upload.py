"""An upload that is too large, against the real server: refused cleanly, with bounded memory and no file left."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from planner.models import Artifact, AuditEvent, Workload
from tests.integration.console import Console
from tests.speed import lateness

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]

SENT = int(os.environ.get("CACHEROUTE_TEST_UPLOAD_BYTES", 2 * 2**30))
ROW = b"a-key-of-a-tenant,0.000001\n"
HEAD = b'--x\r\nContent-Disposition: form-data; name="fleet"\r\n\r\nalpha\r\n--x\r\n'
HEAD += b'Content-Disposition: form-data; name="file"; filename="big.csv"\r\nContent-Type: text/csv\r\n\r\nkey,rate\n'
TAIL = b"\r\n--x--\r\n"


def body(size: int) -> Iterator[bytes]:
    """A form of `size` bytes in all, never in memory as a whole."""
    yield HEAD
    left = size - len(HEAD) - len(TAIL)
    chunk = (ROW * (2**20 // len(ROW) + 1))[: 2**20]
    while left > 0:
        yield chunk[:left]
        left -= len(chunk)
    yield TAIL


def rss(console: Console) -> int:
    """Resident bytes of the server and its workers."""
    main = psutil.Process(console.process.pid)
    return sum(p.memory_info().rss for p in [main, *main.children(recursive=True)])


def test_an_upload_of_two_gigabytes_is_refused_and_takes_no_memory(secret, fleet, tmp_path):
    with Console(secret, TMPDIR=str(tmp_path)) as console:
        before, peak, disk, over = rss(console), 0, 0, threading.Event()

        def watch() -> None:
            nonlocal peak, disk
            while not over.wait(0.1):
                peak = max(peak, rss(console))
                disk = max(disk, sum(_size(path) for path in tmp_path.rglob("*.upload*")))

        watcher = threading.Thread(target=watch)
        watcher.start()
        started = time.monotonic()
        try:
            headers = {"Content-Type": "multipart/form-data; boundary=x", "Content-Length": str(SENT)}
            status, answer = console.ask("POST", "/api/v1/workloads/", body(SENT), **headers)
        finally:
            over.set()
            watcher.join()
        took = time.monotonic() - started
        assert (status, answer["code"], answer["errors"][0]["pointer"]) == (400, "invalid", "/file")
        assert "512 MiB" in answer["detail"]
        assert peak - before < 64 * 2**20, f"{(peak - before) / 2**20:.0f} MiB more"
        assert disk < 2**20  # its declared length says at once that it is too large
        assert not list(tmp_path.rglob("*.upload*"))
        assert took < 60 * lateness()
        assert console.ask("GET", "/api/v1/workloads/")[0] == 200
    assert not Workload.objects.exists()
    assert not Artifact.objects.exists()
    assert not AuditEvent.objects.filter(action="workload.imported").exists()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_a_body_of_json_that_is_too_large_is_refused_unread(secret, fleet):
    with Console(secret) as console:
        before = rss(console)
        status, answer = console.ask(
            "POST", "/api/v1/plans/", b" " * 50 * 2**20, **{"Content-Type": "application/json"}
        )
        assert (status, answer["code"]) == (413, "too-large")
        assert rss(console) - before < 20 * 2**20
