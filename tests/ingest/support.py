"""Shared helpers of the import tests: paths of files, and short functions to read bytes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from planner.ingest import ImportedWorkload, ImportProblem, read_workload

ROOT = Path(__file__).resolve().parents[2]
OWN = ROOT / "tests" / "data"
REAL = ROOT.parent / "shared" / "data"


def read_bytes(content: bytes, *, name: str = "upload.txt", **settings: Any) -> ImportedWorkload:
    return read_workload(io.BytesIO(content), name=name, **settings)


def problem_of(content: bytes | str, *, name: str = "upload.txt", **settings: Any) -> ImportProblem:
    """Import a bad file, and check that the message names the place of the fault."""
    content = content.encode() if isinstance(content, str) else content
    with pytest.raises(ImportProblem) as caught:
        read_bytes(content, name=name, **settings)
    problem = caught.value
    assert str(problem).startswith(name)
    if problem.row is not None:
        assert f"row {problem.row}" in str(problem)
    if problem.field is not None:
        assert problem.field in str(problem)
    return problem


def request(timestamp: Any = 0, prompt: Any = 512, output: Any = 5, ids: Any = (1,), **extra: Any) -> str:
    row = {"timestamp": timestamp, "input_length": prompt, "output_length": output, "hash_ids": ids}
    return json.dumps(row | extra) + "\n"


def real(path: str) -> Path:
    """Return a real data file, or skip."""
    file = REAL / path
    if not file.exists():
        pytest.skip(f"real data not present: {path}")
    return file
