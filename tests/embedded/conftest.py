"""Folders with short paths, and launchers running in processes of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers import CHECKOUT

LAUNCH = """
import sys, time
from pathlib import Path
from cacheroute_web.embedded import EmbeddedError, Postgres, Valkey
kind, folder = sys.argv[1:]
server = {"postgres": Postgres, "valkey": Valkey}[kind](Path(folder), durable=kind == "valkey")
try:
    server.start()
except EmbeddedError as error:
    sys.exit(str(error))
print(server.process.pid, server.url, flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose sockets have short paths, which pytest's own does not promise."""
    path = Path(tempfile.mkdtemp(prefix="cr-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def launch() -> Iterator[Callable[[str, Path], subprocess.Popen[str]]]:
    """Start a launcher in a process of its own; it prints its server's pid and URL, or dies with its line."""
    started: list[subprocess.Popen[str]] = []

    def start(kind: str, data: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, kind, str(data)],
            cwd=CHECKOUT,
            env=os.environ | {"CACHEROUTE_SUPERVISOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def runs(pid: int) -> bool:
    """Whether a process runs; one that nobody has buried yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def eventually(condition: Callable[[], bool], seconds: float = 120.0) -> bool:
    """Whether the condition came true. The bound ends a test that hangs; it is no measure of speed."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def kill(pid: int) -> None:
    """kill -9, also of what is gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
