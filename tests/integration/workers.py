"""Real Celery workers on the test database, as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from django.db import connection

from cacheroute_web.embedded.common import guarded, tail

START_SECONDS = HANG_SECONDS = 240.0


def environment_of_tests(**more: str) -> dict[str, str]:
    """The environment of a process that works on the test's database instead of the console's."""
    settings = connection.settings_dict
    base, _, _ = os.environ["DATABASE_URL"].partition("?")
    query = os.environ["DATABASE_URL"].removeprefix(base)
    url = base.rpartition("/")[0] + "/" + settings["NAME"] + query
    return {**os.environ, "DATABASE_URL": url, **more}


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Wait until the condition is true and return its value.

    The bound ends a test that hangs, and is no measure of speed: it is `seconds` or four minutes, whichever is longer.
    """
    seconds = max(seconds, HANG_SECONDS)
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return value


class Worker:
    """One worker process tree; `beat=True` embeds the scheduler that sweeps."""

    def __init__(self, *, processes: int = 1, beat: bool = False, **environment: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cr-worker-")
        folder = Path(self._folder.name)
        self.log = folder / "worker.log"
        ready = folder / "ready"
        command = [
            *(sys.executable, "-m", "celery", "-A", "cacheroute_web", "worker", "--pool", "prefork"),
            *("--concurrency", str(processes), "--loglevel", "INFO", "--without-gossip", "--without-mingle"),
            *(("-B", "-s", str(folder / "beat")) if beat else ()),
        ]
        env = environment_of_tests(CACHEROUTE_WORKER_READY_FILE=str(ready), **environment)
        with self.log.open("ab") as log:
            self.process: subprocess.Popen[bytes] = guarded(command, stdout=log, env=env)
        try:
            wait_for(lambda: ready.exists() or self.process.poll() is not None, START_SECONDS, "worker is ready")
            assert self.process.poll() is None, tail(self.log, 0)
        except BaseException:
            self.kill()
            raise

    def tree(self) -> list[psutil.Process]:
        """The worker and its pool processes."""
        try:
            main = psutil.Process(self.process.pid)
            return [main, *main.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def freeze(self) -> None:
        """Stop every process of it where it stands."""
        for process in self.tree():
            process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        for process in self.tree():
            process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, all of it."""
        for process in self.tree():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait()
        self._folder.cleanup()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
