"""`make bench`: every bench_*.py beside this file, one JSON object a line on stdout.

python -m benchmarks [NAME...]        e.g. `python -m benchmarks planner replay`
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path


def main(names: list[str]) -> int:
    """Call each module's ``main``; a module that fails is reported, the others still run."""
    known = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)} (there are {', '.join(known)})", file=sys.stderr)
        return 2
    failed = []
    for name in names or known:
        print(f"bench_{name}", file=sys.stderr, flush=True)
        try:
            importlib.import_module(f"benchmarks.bench_{name}").main()
        except Exception:  # noqa: BLE001  shown, and the exit code says it
            traceback.print_exc()
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
