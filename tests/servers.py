"""Early pytest plugin (`-p tests.servers`): real servers for the tests, and what to do without a system program.

Unless ``DATABASE_URL`` and ``BROKER_URL`` name real servers, an embedded PostgreSQL and Valkey start in a temporary
folder before Django's settings are read, and stop when pytest ends. A run that was killed with -9 leaves only its
folder, which the next run removes.

With pytest-xdist the controller starts the servers. All workers share one PostgreSQL, with a database for each worker
(`tests/databases.py`); each worker gets a broker and a home folder of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from planner.digests import kernel_cache

CHECKOUT = Path(__file__).resolve().parents[1]
PREFIX = f"cacheroute-test-{os.getuid()}-"
RUN = "CACHEROUTE_TEST_RUN"  # names the template databases of this run
GOLDEN = "CACHEROUTE_TEST_GOLDEN"  # the folder with the artifacts of the golden databases
# Options with which pytest runs no test.
NO_TESTS = {"--collect-only", "--co", "--help", "-h", "--version", "-V", "--fixtures", "--markers", "--setup-plan"}
# System programs that tests may need, and the Debian packages that bring them.
PACKAGES = {
    "chromium": "chromium",
    "docker": "docker.io",
    "haproxy": "haproxy",
    "nginx": "nginx-light",
    "unshare": "util-linux",
}
NEEDS = re.compile(r"needs (\S+): apt-get install \S+")

# Files whose tests run in one process: a home from empty to warm, engines that are measured once, requests counted.
WHOLE_FILES = ("/test_supervisor.py", "/test_llama_fleet.py", "/test_openapi.py")

_cleanup = contextlib.ExitStack()
_own_broker = False


def find_program(name: str) -> str | None:
    """Path of a system program, also where only root's PATH has it."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", "/usr/local/sbin"])
    return shutil.which(name, path=path)


def need_program(name: str) -> str:
    """Path of a system program; without it the test is skipped, or fails under CACHEROUTE_REQUIRE_PROGRAMS=1."""
    found = find_program(name)
    if found is None:
        reason = f"needs {name}: apt-get install {PACKAGES[name]}"
        if os.environ.get("CACHEROUTE_REQUIRE_PROGRAMS") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason, allow_module_level=True)
    return found


def remove_leftovers() -> None:
    """Remove folders of runs that were killed: those whose lock nobody holds."""
    from cacheroute_web.embedded.common import FileLock, Locked

    for folder in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        lock = FileLock(folder / "run.lock")
        with contextlib.suppress(Locked, OSError):
            lock.acquire()
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()


def start_servers() -> None:
    """Start what the environment does not name, and point the environment at it."""
    from cacheroute_web.embedded import Postgres
    from cacheroute_web.embedded.common import FileLock

    remove_leftovers()
    home = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = FileLock(home / "run.lock")
    lock.acquire()
    _cleanup.callback(shutil.rmtree, home, ignore_errors=True)
    _cleanup.callback(lock.release)
    os.environ["CACHEROUTE_HOME"] = str(home)
    os.environ[RUN] = home.name.removeprefix(PREFIX)
    os.environ[GOLDEN] = str(home / "golden")
    if not os.environ.get("DATABASE_URL"):
        # Tests of many users at once take 50 connections each, and each test process may run one of them.
        postgres = Postgres(home / "postgres", durable=False, connections=400)
        postgres.start()
        _cleanup.callback(postgres.stop)
        os.environ["DATABASE_URL"] = postgres.url
    if not os.environ.get("BROKER_URL"):
        global _own_broker
        _own_broker = True
        os.environ["BROKER_URL"] = start_broker(home)


def start_broker(home: Path) -> str:
    """Start a Valkey in the folder and return its URL."""
    from cacheroute_web.embedded import Valkey

    valkey = Valkey(home / "valkey", durable=False)
    valkey.start()
    _cleanup.callback(valkey.stop)
    return valkey.url


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[Any]) -> None:
    """Give each worker of pytest-xdist a home folder and a broker: tests empty their broker."""
    for number, spec in enumerate(specs, start=1):
        home = Path(os.environ["CACHEROUTE_HOME"]) / spec.id
        home.mkdir()
        broker = start_broker(home) if _own_broker else numbered(os.environ["BROKER_URL"], number)
        spec.env.update(CACHEROUTE_HOME=str(home), BROKER_URL=broker)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than cores for `-n auto`: tests of processes, browsers and routers mostly wait."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out single tests, but some files as a whole: their tests share what is made once."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if file.endswith(WHOLE_FILES) else nodeid

    return Scheduling(config, log)


def numbered(url: str, number: int) -> str:
    """The broker's URL with a logical database of that number."""
    parts = urlsplit(url)
    if parts.scheme == "redis+socket":
        return urlunsplit(parts._replace(query=f"virtual_host={number}"))
    return urlunsplit(parts._replace(path=f"/{number}"))


def terminated(_number: int, _frame: Any) -> None:
    """End the run in order, so that the servers are stopped and the folder is removed."""
    pytest.exit("terminated", returncode=143)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> Iterator[None]:
    """Set the environment before pytest-django reads the settings."""
    os.environ["CACHEROUTE_ENV"] = "test"
    os.environ["CACHEROUTE_SECRET_KEY"] = "only for tests, never for a console that anybody reaches"
    os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # playwright runs an event loop in the main thread
    # Kernels compile once for all runs.
    os.environ.setdefault("NUMBA_CACHE_DIR", str(kernel_cache(CHECKOUT / ".pytest_cache" / "numba")))
    if NO_TESTS & set(args):
        os.environ.setdefault("DATABASE_URL", "postgres:///none")
        os.environ.setdefault("BROKER_URL", "memory://")
    else:
        atexit.register(_cleanup.close)  # pytest_unconfigure is not reached when a conftest cannot be imported
        signal.signal(signal.SIGTERM, terminated)
        start_servers()
    return (yield)


def pytest_unconfigure() -> None:
    """Stop the servers."""
    _cleanup.close()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Count the tests that a missing system program kept from running."""
    missing: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if found := NEEDS.search(reason):
            missing[found.group(1)] += 1
    if missing:
        parts = ", ".join(f"{name}: {count}" for name, count in sorted(missing.items()))
        packages = " ".join(sorted({PACKAGES[name] for name in missing}))
        terminalreporter.write_line(
            f"skipped for missing programs: {missing.total()} ({parts}); apt-get install {packages}", yellow=True
        )
