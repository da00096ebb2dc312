"""The nightly run: every test at full size with coverage, then every test once more on a machine that is busy.

    make nightly                      # both parts
    make nightly ARGS="--only full"   # or "loaded"

`NIGHTLY=1` multiplies the examples of all property tests, makes 1,000 interleavings of rollouts and sends 5,000
requests from the OpenAPI document (`tests/scale.py`); the kill -9 drills are part of every run. The loaded part runs
under `nice` beside two busy loops: no outcome may follow from the speed of the machine. The last lines are the entry
for `docs/nightly.md`. Standard library only.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = sys.executable
BUSY = "while True: pass"
LOADED_TIMEOUT_S = 3_600  # of one test, under a tenth of a core
SUMMARY = re.compile(r"^=* ?(\d+ (?:passed|failed).*?) in ([\d.]+)s", re.MULTILINE)


def run(command: list[str], **environment: str) -> tuple[int, str, float]:
    """Run it and show what it writes; exit code, output and seconds."""
    began = time.monotonic()
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        lines = []
        for line in process.stdout or []:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines), time.monotonic() - began


def line_of(name: str, code: int, output: str, seconds: float) -> str:
    """One line of the entry, and one for each test that failed."""
    found = SUMMARY.findall(output)
    result = found[-1][0] if found else f"no summary, exit code {code}"
    failed = "".join(f"\n  - {line}" for line in re.findall(r"^(?:FAILED|ERROR) .*", output, re.MULTILINE))
    return f"- {name}: {result}; {seconds / 60:.1f} min{failed}"


def full() -> tuple[bool, list[str]]:
    """Full size with coverage, and the floor."""
    subprocess.run([PYTHON, "-m", "coverage", "erase"], cwd=ROOT, check=True)
    options = [
        "-q",
        "-n",
        "auto",
        "--timeout",
        "1800",
        "--durations=20",
        "--cov",
        "--cov-report=",
        "--cov-fail-under=0",
    ]
    code, output, seconds = run([PYTHON, "-m", "pytest", *options], NIGHTLY="1")
    if list(ROOT.glob(".coverage.*")):
        subprocess.run([PYTHON, "-m", "coverage", "combine", "-q", "--append"], cwd=ROOT, check=True)
    floor, report, _ = run([PYTHON, "-m", "coverage", "report"])
    total = re.findall(r"^TOTAL.*?(\d+)%", report, re.MULTILINE)
    lines = [line_of("full size (`NIGHTLY=1`)", code, output, seconds), f"- coverage: {total[-1] if total else '?'}%"]
    return code == 0 and floor == 0, lines


def loaded() -> tuple[bool, list[str]]:
    """The ordinary size under `nice`, beside two busy loops."""
    with ExitStack() as stack:
        for _ in range(2):
            loop = subprocess.Popen([sys.executable, "-c", BUSY])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        options = ["-q", "-n", "auto", "-o", f"timeout={LOADED_TIMEOUT_S}"]
        code, output, seconds = run(["nice", PYTHON, "-m", "pytest", *options])
    return code == 0, [line_of("under `nice` beside two busy loops", code, output, seconds)]


def main() -> int:
    """Run the parts and print the entry."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["full", "loaded"], help="one part")
    only = parser.parse_args().only
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    passed, lines = True, []
    for name, part in (("full", full), ("loaded", loaded)):
        if only in (None, name):
            good, entry = part()
            passed, lines = passed and good, lines + entry
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"\n## {dt.datetime.now(dt.UTC):%Y-%m-%d}, {commit.stdout.strip()}\n")
    outcome = "Passed" if passed else "Failed"
    print(f"Python {platform.python_version()}, {platform.machine()}, {cores} cores. {outcome}.\n")
    print("\n".join(lines))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
