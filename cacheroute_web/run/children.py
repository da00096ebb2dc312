"""The processes under the supervisor: how each is started, watched, restarted and stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cacheroute_web.embedded.common import end_group, guarded

__all__ = ["Child", "reclaim", "record"]

LONGEST_BACKOFF = 30.0  # seconds between restarts of a child that keeps dying
STEADY = 60.0  # seconds after which a child counts as healthy again


@dataclass
class Child:
    """One long-running process and what to do when it ends.

    ``stop_seconds`` bounds its own orderly stop; after that it is killed with all of its process group.
    ``death_signal`` is what the kernel sends it when the supervisor is killed with -9.
    """

    name: str
    command: Sequence[str]
    log: Path
    env: dict[str, str]
    pass_fds: Sequence[int] = ()
    stop_seconds: float = 10.0
    death_signal: signal.Signals = signal.SIGTERM
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    _started: float = field(default=0.0, repr=False)
    _due: float | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start it, its output appended to its log."""
        with self.log.open("ab") as log:
            self.process = guarded(
                self.command,
                stdout=log,
                env=self.env,
                pass_fds=self.pass_fds,
                death_signal=self.death_signal,
            )
        self._started = time.monotonic()
        self._due = None

    def watch(self) -> str | None:
        """Restart it when it has died and its waiting time is over; a line to print when there is news."""
        if self.process is None:
            return None
        now = time.monotonic()
        if self._due is not None:
            if now >= self._due:
                self.start()
            return None
        status = self.process.poll()
        if status is None:
            if self.restarts and now - self._started > STEADY:
                self.restarts = 0
            return None
        end_group(self.process.pid)  # what it left behind must not work beside its successor
        wait = min(2.0**self.restarts, LONGEST_BACKOFF)
        self.restarts += 1
        self._due = now + wait
        how = f"signal {-status}" if status < 0 else f"exit {status}"
        return f"{self.name} ended ({how}); starting it again in {wait:.0f} s, see {self.log}"

    def alive(self) -> bool:
        """Whether it runs now."""
        return self.process is not None and self.process.poll() is None

    def ask_to_stop(self) -> None:
        """Begin the orderly stop, without waiting."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def finish(self, asked: float) -> bool:
        """Wait for the stop requested at ``asked`` (monotonic), then kill; return whether it stopped without a kill."""
        if self.process is None:
            return True
        orderly = True
        try:
            self.process.wait(max(0.0, asked + self.stop_seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            orderly = False
        end_group(self.process.pid)
        self.process.wait()
        self.process = None
        return orderly


def _boot() -> str:
    """Identifies this boot of the machine: pids of an earlier one mean nothing."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started_at(pid: int) -> str:
    """When a process started, in clock ticks since boot; empty when it is gone (or outside Linux)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError:
        return ""


def record(path: Path, pids: Sequence[int]) -> None:
    """Write down the process groups, for ``reclaim`` by a later start."""
    path.write_text(json.dumps({"boot": _boot(), "groups": {str(pid): _started_at(pid) for pid in pids}}))


def reclaim(path: Path) -> int:
    """End process groups that a killed supervisor left behind; how many.

    A pid is trusted when its process started at the recorded tick, or is gone: the kernel gives no pid away that
    still names a group.
    """
    try:
        recorded = json.loads(path.read_text())
        groups = dict(recorded["groups"]) if recorded["boot"] == _boot() else {}
    except (OSError, ValueError, KeyError):
        return 0
    ended = 0
    for pid, started in groups.items():
        if _started_at(int(pid)) in (started, ""):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(pid), signal.SIGKILL)
                ended += 1
    path.unlink(missing_ok=True)
    return ended
