"""Digests that bind results to their inputs."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from planner import __version__


def canonical_json(value: Any) -> bytes:
    """Return the canonical bytes of a JSON value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(value: Any) -> str:
    """Return the sha256 of the canonical JSON, 64 hex digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


KERNELS = ("analysis", "routing", "simulation")


@lru_cache(maxsize=1)
def code_version() -> str:
    """Return the release and a digest of the source that computes results; a changed kernel changes it."""
    return _version_of(
        *KERNELS,
        "artifacts.py",  # how a table is written decides its bytes, and so its digest
        "services/plans/tables.py",
        "services/replays/cell_figures.py",
        "services/replays/cell_runs.py",
        "services/replays/policy_parameters.py",
        "services/replays/verdict_parts.py",
        "services/replays/verdicts.py",
        "services/workloads/traces.py",
    )


def kernel_cache(folder: Path) -> Path:
    """Return the folder of the compiled kernels of this source version.

    The compiler recompiles a function when its own file changes, but not when a file that it calls changes. After an
    upgrade it would mix kernels of old and new rules. So each source version has its own folder.
    """
    return folder / _version_of(*KERNELS)


def source_number() -> int:
    """Return the version of the kernels' source as a number ≥ 0."""
    return int(_version_of(*KERNELS).rpartition("+")[2], 16)


def _version_of(*parts: str) -> str:
    state = hashlib.sha256()
    root = Path(__file__).parent
    for part in parts:
        for path in sorted((root / part).rglob("*.py")) or [root / part]:
            state.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{__version__}+{state.hexdigest()[:12]}"
