"""The supervisor with a tiny site: everything real but the pages."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.embedded.conftest import eventually, kill
from tests.servers import CHECKOUT, need_program

pytestmark = pytest.mark.integration
RUN = [sys.executable, "-m", "cacheroute_web.run"]
Start = Callable[..., "Running"]


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """One state folder for the module: the first test finds it empty, the others start warm."""
    path = Path(tempfile.mkdtemp(prefix="cr-"))
    yield path / "home"
    shutil.rmtree(path, ignore_errors=True)


def environment(home: Path, **more: str) -> dict[str, str]:
    """Environment of a `make run` whose console is the tiny site."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CACHEROUTE_", "DATABASE_", "BROKER_"))
    }
    site = {"DJANGO_SETTINGS_MODULE": "tests.embedded.site.settings", "CACHEROUTE_SUPERVISOR": "1", "PORT": "0"}
    return kept | site | {"CACHEROUTE_HOME": str(home)} | more


def processes_of(home: Path) -> set[int]:
    """Living processes whose environment or command line names the state folder."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            if os.fsencode(home) in text and int(entry.name) != os.getpid():
                found.add(int(entry.name))
    return found


def hang_up_counts() -> None:
    """Tests that were started with nohup hand their deafness on, and the supervisor heeds it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Running:
    """A supervisor that has said its URL."""

    def __init__(self, home: Path, **more: str) -> None:
        self.process = subprocess.Popen(
            RUN, cwd=CHECKOUT, env=environment(home, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=hang_up_counts,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.lines: list[str] = []
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if line.startswith("http"):
                break
        self.url = self.lines[-1] if self.lines else ""
        if not self.url.startswith("http"):
            raise AssertionError(f"it did not start: {self.lines} {self.process.communicate()[1]}")

    def page(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return str(answer.read().decode())

    def child(self, words: str) -> int:
        """Pid of the direct child whose command line contains the words; 0 when there is none."""
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, IndexError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
                if words in command and int(parent) == self.process.pid:
                    return int(entry.name)
        return 0

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Signal it, wait; exit code and what it wrote to stderr."""
        self.process.send_signal(number)
        _, error = self.process.communicate(timeout=120)
        return self.process.returncode, error


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[Running] = []

    def begin(home: Path, **more: str) -> Running:
        running.append(Running(home, **more))
        return running[-1]

    yield begin
    for each in running:
        each.process.kill()
        each.process.communicate()


def refused(home: Path, *prefix: str, **more: str) -> str:
    """The one line of a start that is refused."""
    result = subprocess.run(
        [*prefix, *RUN], cwd=CHECKOUT, env=environment(home, **more), capture_output=True, text=True, timeout=240
    )
    assert result.returncode == 1, result.stdout
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("cacheroute: ")
    assert "Traceback" not in result.stdout
    return result.stderr.strip()


def test_sigterm_stops_everything_and_a_second_start_finds_the_data(home: Path, start: Start) -> None:
    first = start(home)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", first.url)
    assert "first_run call 0" in first.lines
    assert first.page("count/") == "1"
    assert stat.S_IMODE((home / "secrets.env").stat().st_mode) == 0o600
    key = (home / "secrets.env").read_text()

    assert f"already running at {first.url}" in refused(home)

    assert first.end(signal.SIGTERM) == (0, "")
    assert processes_of(home) == set()
    assert not list(home.glob("postgres/postmaster.pid"))

    second = start(home)
    assert second.page("count/") == "1"  # the data is there, and what completed once is not done again
    assert (home / "secrets.env").read_text() == key
    assert second.end(signal.SIGINT) == (0, "")
    assert processes_of(home) == set()


def test_what_dies_is_started_again(home: Path, start: Start) -> None:
    running = start(home)
    assert eventually(lambda: (home / "run" / "worker.ready").exists())
    for words in ("worker --queues celery", "worker --queues watch", "bin/postgres", "valkey-server"):
        before = running.child(words)
        assert before
        kill(before)
        assert eventually(lambda words=words, before=before: running.child(words) not in (0, before)), words  # type: ignore[misc]
    assert eventually(lambda: running.child("gunicorn") != 0)
    assert running.page("count/").isdigit()
    assert running.end(signal.SIGHUP)[0] == 0
    assert processes_of(home) == set()


def test_a_changed_file_restarts_the_services_of_make_dev_and_keeps_the_port(home: Path, start: Start) -> None:
    running = start(home, CACHEROUTE_ENV="dev")
    words = ("gunicorn", "worker --queues celery", "worker --queues watch", "celery -A cacheroute_web beat")
    assert eventually(lambda: all(running.child(each) for each in words))
    before = {each: running.child(each) for each in words}
    os.utime(CHECKOUT / "dashboards" / "__init__.py")  # an empty file
    assert eventually(lambda: all(running.child(each) not in (0, before[each]) for each in words))
    assert running.page("count/").isdigit()
    assert running.end(signal.SIGTERM)[0] == 0
    assert processes_of(home) == set()


def test_nothing_outlives_a_supervisor_killed_by_9(home: Path, start: Start) -> None:
    running = start(home)
    assert running.child("worker --queues celery")
    assert running.child("worker --queues watch")
    running.process.kill()
    running.process.wait()
    assert eventually(lambda: processes_of(home) == set())
    again = start(home)
    assert again.page("count/").isdigit()
    assert again.end(signal.SIGTERM)[0] == 0


def test_a_signal_while_it_starts_stops_what_was_started(home: Path) -> None:
    process = subprocess.Popen(
        RUN, cwd=CHECKOUT, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert eventually(lambda: len(processes_of(home)) > 3)
    process.terminate()
    _, error = process.communicate(timeout=120)
    assert (process.returncode, error) == (0, "")
    assert processes_of(home) == set()


def test_a_taken_port_gets_one_line_and_starts_nothing(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"port {port} on 127.0.0.1 is taken by another program" in refused(home, PORT=port)
    assert processes_of(home) == set()


def test_a_port_that_is_no_number_gets_one_line(home: Path) -> None:
    assert "PORT=http: expected a number" in refused(home, PORT="http")


def test_a_failing_first_run_gets_one_line_and_leaves_nothing(home: Path) -> None:
    (home / "run" / "first-run").unlink()
    line = refused(home, TEST_FIRST_RUN_FAILS="1")
    assert "the sample could not be made" in line
    assert processes_of(home) == set()
    assert not (home / "run" / "first-run").exists()  # the next start tries again


def test_a_state_folder_that_cannot_be_made_gets_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "set CACHEROUTE_HOME to another" in refused(tmp_path / "file" / "home")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a small disk")
def test_a_full_disk_gets_one_line(tmp_path: Path) -> None:
    need_program("unshare")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=20m small "$0" && exec "$@"', str(disk)]
    if subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
        pytest.skip("mounting is not allowed here")
    assert "disk full: 20 MB free" in refused(disk / "home", *mount)
