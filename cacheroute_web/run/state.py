"""The state folder of `make run`: one owner at a time, secrets, logs, and the stamp of the last migration."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
from pathlib import Path

from cacheroute_web.embedded.common import FileLock, Locked
from planner.digests import kernel_cache

__all__ = ["CHECKOUT", "Refused", "State", "environment", "migration_stamp", "read_secrets"]

CHECKOUT = Path(__file__).resolve().parents[2]
LEAST_FREE_BYTES = 1024**3
LOG_BYTES = 10 * 1024**2


class Refused(Exception):
    """Cannot start or go on; the message is one line for the person at the terminal."""


class State:
    """The folder named by ``CACHEROUTE_HOME`` (default ``var`` in the checkout).

    Raises
    ------
    Refused
        Not writable, no room left, or another `make run` owns it.
    """

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in ("log", "run", "artifacts", "numba"):
                (self.home / name).mkdir(exist_ok=True)
            self._lock = FileLock(self.home / "run.lock")
            self._lock.acquire()
        except Locked as error:
            owner = self._owner()
            raise Refused(f"already running at {owner} (state folder {self.home}); stop that one first") from error
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            raise Refused(f"state folder {self.home}: {error.strerror}; set CACHEROUTE_HOME to another") from error
        free = shutil.disk_usage(self.home).free
        if free < LEAST_FREE_BYTES:
            self.release()
            raise Refused(
                f"disk full: {free >> 20} MB free in {self.home}, at least {LEAST_FREE_BYTES >> 20} MB are needed; "
                "make room or set CACHEROUTE_HOME to another disk"
            )

    def release(self) -> None:
        """Give the folder up."""
        self._lock.release()

    def announce(self, url: str) -> None:
        """Write the URL for another process that finds the folder taken."""
        self._lock.write(json.dumps({"pid": os.getpid(), "url": url}))

    def _owner(self) -> str:
        try:
            return str(json.loads((self.home / "run.lock").read_text())["url"])
        except (OSError, ValueError, KeyError):
            return "an address not known yet (it is still starting)"

    def log(self, name: str) -> Path:
        """Log file of a child."""
        return self.home / "log" / f"{name}.log"

    def trim_logs(self) -> None:
        """Keep at most two generations of 10 MB of each log.

        The child keeps its descriptor and appends, so the file is copied and cut, not renamed.
        """
        for path in (self.home / "log").glob("*.log"):
            if path.stat().st_size > LOG_BYTES:
                shutil.copyfile(path, path.with_suffix(".log.1"))
                os.truncate(path, 0)

    def secrets(self) -> dict[str, str]:
        """Secrets made at the first start and kept in ``secrets.env``, mode 0600."""
        path = self.home / "secrets.env"
        if not path.exists():
            fresh = path.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(f"CACHEROUTE_SECRET_KEY={secrets.token_urlsafe(64)}\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(path)  # complete or absent, never half a key
        path.chmod(0o600)
        return read_secrets(path)

    @property
    def migrated_file(self) -> Path:
        """Holds the stamp of the last completed migration."""
        return self.home / "run" / "migrated"

    def forget_database(self) -> None:
        """Drop the notes about a database that no longer exists."""
        self.migrated_file.unlink(missing_ok=True)
        (self.home / "run" / "first-run").unlink(missing_ok=True)

    def is_migrated(self, database_url: str) -> bool:
        """Whether the last completed migration was of this code, on this database."""
        try:
            return self.migrated_file.read_text() == migration_stamp(database_url)
        except OSError:
            return False


def read_secrets(path: Path) -> dict[str, str]:
    """The secrets of a state folder; ``Refused`` names the line that is none."""
    found = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, separator, value = line.partition("=")
        if not separator:
            raise Refused(f"{path} line {number}: expected NAME=VALUE")
        found[name.strip()] = value.strip()
    if not found.get("CACHEROUTE_SECRET_KEY"):
        raise Refused(f"{path} has no CACHEROUTE_SECRET_KEY; restore it, or remove the file to get a new one")
    return found


def environment(home: Path) -> dict[str, str]:
    """What every process of the console gets, beside the secrets and the addresses of the servers."""
    return {
        "CACHEROUTE_ENV": "run",
        "CACHEROUTE_ARTIFACTS": str(home / "artifacts"),
        "NUMBA_CACHE_DIR": str(kernel_cache(home / "numba")),
        "DJANGO_SETTINGS_MODULE": "cacheroute_web.settings",
    }


def migration_stamp(database_url: str) -> str:
    """Digest of what decides whether there is something to migrate: database, our migrations, the locked packages."""
    digest = hashlib.sha256(database_url.encode())
    for path in sorted(CHECKOUT.glob("*/migrations/*.py")):
        digest.update(b"\0" + path.name.encode() + path.read_bytes())
    digest.update((CHECKOUT / "requirements" / "embedded.txt").read_bytes())
    return digest.hexdigest()
