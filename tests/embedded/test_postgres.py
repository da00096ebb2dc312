"""The PostgreSQL launcher against the real server."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import environ
import psycopg
import pytest

from cacheroute_web.embedded import EmbeddedError, Postgres
from tests.embedded.conftest import eventually, kill, runs
from tests.servers import need_program

Launch = Callable[[str, Path], "subprocess.Popen[str]"]


def ask(server: Postgres, query: str) -> object:
    """First column of the first row, through the settings that Django would use."""
    settings = environ.Env.db_url_config(server.url)
    with psycopg.connect(
        host=settings["HOST"], user=settings["USER"], dbname=settings["NAME"], autocommit=True
    ) as connection:
        cursor = connection.execute(query)
        return cursor.fetchone()[0] if cursor.description else None  # type: ignore[index]


def compute(server: Postgres) -> None:
    """Keep a backend busy for a second or two; it is cut off or finishes."""
    with contextlib.suppress(psycopg.OperationalError):
        ask(server, "SELECT count(*) FROM generate_series(1, 5000000)")


def test_it_keeps_its_data_over_a_restart_and_listens_on_no_port(folder: Path) -> None:
    for start in (1, 2):
        server = Postgres(folder / "pg", durable=False)
        server.start()
        try:
            assert server.created is (start == 1)
            if start == 1:
                ask(server, "CREATE TABLE kept AS SELECT 42 AS answer")
            assert ask(server, "SELECT answer FROM kept") == 42
            assert ask(server, "SHOW listen_addresses") == ""
            assert stat.S_IMODE(server.sockets.stat().st_mode) == 0o700
        finally:
            server.stop()
        assert not (folder / "pg" / "postmaster.pid").exists()


def test_a_second_launcher_prints_one_line_and_stops(folder: Path, launch: Launch) -> None:
    server = Postgres(folder / "pg", durable=False)
    server.start()
    try:
        second = launch("postgres", folder / "pg")
        _, error = second.communicate(timeout=30)
        assert second.returncode == 1
        assert error.strip().count("\n") == 0
        assert f"{folder / 'pg'} is in use by another running launcher" in error
        assert ask(server, "SELECT 1") == 1
    finally:
        server.stop()


def test_the_server_dies_with_a_launcher_killed_by_9_and_the_next_start_works(folder: Path, launch: Launch) -> None:
    first = launch("postgres", folder / "pg")
    pid = int(first.stdout.readline().split()[0])  # type: ignore[union-attr]
    first.kill()
    assert eventually(lambda: not runs(pid))
    server = Postgres(folder / "pg", durable=False)
    server.start()
    server.stop()


def test_it_starts_after_kill_9_of_the_server_with_a_backend_busy(folder: Path) -> None:
    """A computing backend notices the death late, and holds the shared memory until then."""
    server = Postgres(folder / "pg", durable=False)
    server.start()
    try:
        ask(server, "CREATE TABLE kept AS SELECT 1 AS one")
        ask(server, "CHECKPOINT")
        busy = threading.Thread(target=compute, args=(server,))
        busy.start()
        assert eventually(lambda: ask(server, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active'") == 2)
        assert server.process is not None
        kill(server.process.pid)
        server.process.wait()
        server.revive()
        assert ask(server, "SELECT one FROM kept") == 1
        busy.join(30)
    finally:
        server.stop()


@pytest.mark.parametrize("whose", ["a stranger's", "a dead process's"])
def test_a_stale_pid_file_does_not_keep_it_from_starting(folder: Path, whose: str) -> None:
    server = Postgres(folder / "pg", durable=False)
    server.start()
    server.stop()
    gone = subprocess.Popen(["true"])
    gone.wait()
    pid = os.getpid() if whose == "a stranger's" else gone.pid
    (folder / "pg" / "postmaster.pid").write_text(f"{pid}\n{folder / 'pg'}\n1\n5432\n{server.sockets}\n\n")
    server = Postgres(folder / "pg", durable=False)
    server.start()
    assert ask(server, "SELECT 1") == 1
    server.stop()


def test_a_server_that_outlived_its_launcher_is_replaced(folder: Path, launch: Launch) -> None:
    first = Postgres(folder / "pg", durable=False)
    first.start()
    first._lock.release()  # what is left when a launcher dies where the kernel sends no death signal
    second = Postgres(folder / "pg", durable=False)
    second.start()
    assert first.process is not None
    assert first.process.wait(10) == 0
    assert ask(second, "SELECT 1") == 1
    second.stop()


def test_a_long_path_gets_a_short_private_socket_folder_that_is_removed_again(folder: Path) -> None:
    data = folder / ("long" * 30) / "pg"
    server = Postgres(data, durable=False)
    server.start()
    try:
        assert len(os.fsencode(server.sockets / ".s.PGSQL.5432")) < 100
        assert stat.S_IMODE(server.sockets.stat().st_mode) == 0o700
        assert ask(server, "SELECT 1") == 1
    finally:
        server.stop()
    assert not server.sockets.exists()


def test_what_is_not_a_database_is_left_alone(folder: Path) -> None:
    (folder / "pg").mkdir()
    (folder / "pg" / "thesis.txt").write_text("years of work")
    with pytest.raises((EmbeddedError, OSError)):
        Postgres(folder / "pg", durable=False).start()
    assert (folder / "pg" / "thesis.txt").read_text() == "years of work"


@pytest.mark.skipif(os.getuid() != 0, reason="only root needs it")
def test_as_root_without_user_namespaces_it_says_what_to_set(folder: Path) -> None:
    """A PATH without `unshare`, and an interpreter that nobody may execute."""
    need_program("unshare")
    private = folder / "private"
    private.mkdir(mode=0o700)
    (private / "python").symlink_to(sys.executable)
    code = (
        "import sys; sys.executable = sys.argv[1]\n"
        "from pathlib import Path; from cacheroute_web.embedded import EmbeddedError, Postgres\n"
        "try: Postgres(Path(sys.argv[2])).start()\n"
        "except EmbeddedError as error: sys.exit(str(error))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(private / "python"), str(folder / "pg")],
        env=os.environ | {"PATH": str(folder), "CACHEROUTE_SUPERVISOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr.strip().count("\n") == 0
    assert "set DATABASE_URL" in result.stderr


def test_a_signal_during_the_start_leaves_no_server_behind(folder: Path) -> None:
    class Interrupted(Exception):
        pass

    def pause(_seconds: float) -> None:
        raise Interrupted

    server = Postgres(folder / "pg", durable=False, pause=pause)
    with pytest.raises(Interrupted):
        server.start()
    assert server.process is None
    again = Postgres(folder / "pg", durable=False)
    again.start()
    assert again.process is not None
    again.process.send_signal(signal.SIGINT)
    assert again.process.wait(10) == 0
    again.stop()
