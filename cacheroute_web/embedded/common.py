"""What both launchers need: a lock, a short socket path, a guarded child process."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

__all__ = [
    "EmbeddedError",
    "FileLock",
    "Locked",
    "Pause",
    "guarded",
    "processes_in",
    "socket_dir",
    "stop_process",
    "tail",
]

MAX_SOCKET_PATH = 100  # bytes; sun_path holds 104 (macOS) or 108 (Linux), PostgreSQL adds nothing to what we count

#: Waits for some seconds; the supervisor's own also notices signals and raises to leave the wait.
Pause = Callable[[float], None]


class EmbeddedError(Exception):
    """An embedded server cannot run; the message is one line for the person at the terminal."""


class Locked(EmbeddedError):
    """Somebody who lives holds the lock."""


class FileLock:
    """An exclusive ``flock``: the kernel drops it when the holder dies, however it dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises
        ------
        Locked
            When a living process holds it.
        """
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise Locked(f"{self.path} is held by another process") from error
        self._fd = fd

    def write(self, text: str) -> None:
        """Leave a note for another process that finds the lock taken."""
        if self._fd is None:
            raise ValueError(f"{self.path} is not held")
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, text.encode(), 0)

    def release(self) -> None:
        """Drop the lock. The file stays: removing it would let two holders lock two different inodes."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None


def socket_dir(wanted: Path, longest_name: str) -> Path:
    """Make and return ``wanted``, or a short private folder when a socket in it would have too long a path.

    The short folder is named by a hash of the wanted path, so every start finds the same one.

    Raises
    ------
    EmbeddedError
        When the short folder exists and is not ours alone.
    """
    if len(os.fsencode(wanted / longest_name)) < MAX_SOCKET_PATH:
        folder = wanted
    else:
        digest = hashlib.sha256(os.fsencode(wanted.resolve())).hexdigest()[:16]
        folder = Path(tempfile.gettempdir()) / f"cacheroute-{os.getuid()}-{digest}"
        if len(os.fsencode(folder / longest_name)) >= MAX_SOCKET_PATH:
            folder = Path("/tmp") / folder.name  # noqa: S108  checked below: ours, mode 0700
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if folder != wanted and (folder.is_symlink() or found.st_uid not in (os.getuid(), 65534)):
        raise EmbeddedError(f"{folder} belongs to another user; remove it or set CACHEROUTE_HOME to a shorter path")
    folder.chmod(0o700)
    return folder


def guarded(
    program: Sequence[str],
    *,
    prefix: Sequence[str] = (),
    death_signal: signal.Signals = signal.SIGTERM,
    stdout: IO[bytes] | int | None = None,
    stderr: IO[bytes] | int | None = subprocess.STDOUT,
    env: dict[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    user: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start ``program`` in a process group of its own, to die with ``death_signal`` when we die.

    Its own group keeps the terminal's Ctrl-C away: the order of stopping is ours. Call from the main thread
    (Linux sends the death signal when the *thread* that started the child ends).
    """
    guard = Path(__file__).with_name("guard.py")
    # The guard inherits a blocked SIGINT and unblocks it, so that a stop during its start is not lost.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [*prefix, sys.executable, "-IS", str(guard), str(int(death_signal)), str(os.getpid()), *program],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=env,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
            cwd="/" if prefix or user is not None else None,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_process(process: subprocess.Popen[bytes], *signals: tuple[signal.Signals, float]) -> None:
    """Send each signal in turn and wait up to its seconds; at last SIGKILL to the whole group."""
    for number, seconds in signals:
        if process.poll() is not None:
            break
        process.send_signal(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
    end_group(process.pid)  # stragglers of the group too
    process.wait()


def end_group(group: int, seconds: float = 10.0) -> None:
    """SIGKILL a process group and wait until none of it runs: a process runs on until the kernel has ended it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    wait_until(lambda: not runs_in_group(group), seconds, time.sleep)


def runs_in_group(group: int) -> bool:
    """Whether a process of the group runs (Linux; elsewhere always False); a zombie does not."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):  # gone meanwhile
            state, _parent, its_group = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False


def processes_in(folder: Path) -> list[int]:
    """Pids of living processes whose working directory is ``folder`` (Linux; elsewhere always empty)."""
    found = []
    wanted = os.path.realpath(folder)
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "cwd") == wanted:
                found.append(int(entry.name))
        except OSError:  # gone meanwhile, or not ours
            continue
    return found


def tail(path: Path, start: int = 0) -> str:
    """Last non-empty line of a log from byte ``start`` on, or a word that says there is none."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    return lines[-1] if lines else "it wrote nothing"


def wait_until(ready: Callable[[], bool], seconds: float, pause: Pause, step: float = 0.02) -> bool:
    """Poll ``ready`` for up to ``seconds``; whether it came true."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() >= deadline:
            return False
        pause(step)
    return True
