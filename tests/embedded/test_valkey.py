"""The Valkey launcher against the real server."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from celery import Celery

from cacheroute_web.embedded import Valkey
from tests.embedded.conftest import eventually, runs

Launch = Callable[[str, Path], "subprocess.Popen[str]"]


def queued(server: Valkey) -> int:
    """Messages waiting in the queue, as Celery's own client sees them."""
    with Celery(broker=server.url, set_as_current=False).connection_for_read() as connection:
        return int(connection.default_channel.client.llen("celery"))


def file_task(server: Valkey) -> None:
    """Send one task that nobody takes."""
    app = Celery(broker=server.url, set_as_current=False)
    app.send_task("nobody.takes.it", ignore_result=True)
    app.close()


def test_a_queued_task_survives_a_restart(folder: Path) -> None:
    server = Valkey(folder / "vk")
    server.start()
    file_task(server)
    server.stop()
    server = Valkey(folder / "vk")
    server.start()
    try:
        assert queued(server) == 1
    finally:
        server.stop()


def test_a_queued_task_survives_kill_9_of_the_launcher(folder: Path, launch: Launch) -> None:
    first = launch("valkey", folder / "vk")
    pid = int(first.stdout.readline().split()[0])  # type: ignore[union-attr]
    file_task(Valkey(folder / "vk"))
    first.kill()
    assert eventually(lambda: not runs(pid))
    second = Valkey(folder / "vk")
    second.start()
    try:
        assert queued(second) == 1
    finally:
        second.stop()


def test_a_second_launcher_does_not_steal_the_socket(folder: Path, launch: Launch) -> None:
    server = Valkey(folder / "vk", durable=False)
    server.start()
    try:
        file_task(server)
        second = launch("valkey", folder / "vk")
        _, error = second.communicate(timeout=30)
        assert second.returncode == 1
        assert error.strip().count("\n") == 0
        assert "is in use by another running launcher" in error
        assert queued(server) == 1
    finally:
        server.stop()


def test_a_server_that_outlived_its_launcher_is_asked_to_stop(folder: Path) -> None:
    first = Valkey(folder / "vk")
    first.start()
    file_task(first)
    first._lock.release()  # what is left when a launcher dies where the kernel sends no death signal
    second = Valkey(folder / "vk")
    second.start()
    try:
        assert first.process is not None
        assert first.process.wait(10) == 0
        assert queued(second) == 1
    finally:
        second.stop()


def test_a_server_killed_by_9_comes_back_with_what_it_had(folder: Path) -> None:
    server = Valkey(folder / "vk")
    server.start()
    try:
        file_task(server)
        assert eventually(lambda: queued(server) == 1)
        assert server.process is not None
        server.process.kill()
        server.process.wait()
        server.revive()
        assert queued(server) == 1
    finally:
        server.stop()


def test_a_long_path_with_a_space_is_reachable_through_its_url(folder: Path) -> None:
    server = Valkey(folder / "a b" / ("long" * 30) / "vk", durable=False)
    server.start()
    try:
        file_task(server)
        assert queued(server) == 1
    finally:
        server.stop()
    spaced = Valkey(folder / "a b" / "vk", durable=False)
    spaced.start()
    try:
        file_task(spaced)
        assert queued(spaced) == 1
    finally:
        spaced.stop()
