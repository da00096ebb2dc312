"""Seconds of `make run` to its address: cold in a clean copy (environment, database, sample), then warm."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
COLD_SECONDS = 150.0
WARM_SECONDS = 6.0


def load_smoke() -> ModuleType:
    """The smoke of `make run`, whose start and stop are what is timed here."""
    spec = importlib.util.spec_from_file_location("smoke", ROOT / ".ci" / "smoke.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(ROOT / ".ci" / "smoke.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["smoke"] = module
    spec.loader.exec_module(module)
    return module


def emit(name: str, seconds: float, baseline: float) -> None:
    """Print one figure beside the figure it is held against."""
    line = {"name": name, "value": round(seconds, 2), "unit": "s", "baseline": baseline}
    print(json.dumps(line | {"ratio": round(seconds / baseline, 4)}), flush=True)


def main() -> None:
    """Start the committed tree twice; the pip cache is the user's own."""
    smoke = load_smoke()
    progress = sys.stdout
    with tempfile.TemporaryDirectory(prefix="cr-bench-") as folder:
        copy = smoke.copy_of_head(Path(folder))
        env = smoke.clean_environment(os.environ.get("HOME", folder))
        for name, limit in (("start_cold", COLD_SECONDS), ("start_warm", WARM_SECONDS)):
            sys.stdout = sys.stderr  # the progress lines of the smoke are no figures
            try:
                with smoke.running(copy, env, 600) as (_, seconds):
                    pass
            finally:
                sys.stdout = progress
            emit(name, seconds, limit)


if __name__ == "__main__":
    main()
