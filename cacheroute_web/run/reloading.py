"""Changes of the source, for `make dev`: the supervisor restarts the services when a Python file changes."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["Sources"]

PACKAGES = ("planner", "cacheroute_web", "dashboards")
LOOK_EVERY_S = 1.0


class Sources:
    """The Python files of the packages that the services load.

    Parameters
    ----------
    checkout : Path
        Folder that holds the packages.
    every_s : float
        Seconds between two looks at the files.
    """

    def __init__(self, checkout: Path, every_s: float = LOOK_EVERY_S) -> None:
        self._checkout = checkout
        self._every_s = every_s
        self._seen = self._read()
        self._looked = time.monotonic()

    def changed(self) -> str:
        """Path of a file that was added, changed or removed since the last look; empty without one."""
        if time.monotonic() - self._looked < self._every_s:
            return ""
        found = self._read()
        different = sorted(path for path in found.keys() | self._seen.keys() if found.get(path) != self._seen.get(path))
        self._seen, self._looked = found, time.monotonic()
        return different[0] if different else ""

    def _read(self) -> dict[str, int]:
        """Time of the last change, in ns, of each file by its path in the checkout."""
        found = {}
        for package in PACKAGES:
            for folder, _, names in os.walk(self._checkout / package):
                for name in names:
                    if name.endswith(".py"):
                        path = Path(folder, name)
                        try:
                            found[path.relative_to(self._checkout).as_posix()] = path.stat().st_mtime_ns
                        except FileNotFoundError:  # an editor replaces a file by renaming another
                            continue
        return found
