"""The supervisor of `make run`: every service of the console as a child of one process that cleans up after itself.

Order of starting: PostgreSQL and Valkey (unless ``DATABASE_URL`` / ``BROKER_URL`` name real ones), migrations, then
web, workers and beat, then ``first_run``. When the stamp of the last migration says that nothing changed, the web
server starts while the migrations are being checked, and the others after the page answers: that is what keeps a
second start within a few seconds. Order of stopping: web, beat and workers together, then Valkey, then PostgreSQL.

Two workers: one for jobs, and a small one for the monitor, which no job keeps waiting. The small one starts when the
other is ready: kernels, which it needs for simulated traffic only, are compiled by then and read from the cache.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from cacheroute_web.embedded import EmbeddedError, Postgres, Valkey
from cacheroute_web.embedded.common import guarded, tail
from cacheroute_web.run.children import Child, reclaim, record
from cacheroute_web.run.reloading import Sources
from cacheroute_web.run.state import CHECKOUT, Refused, State, environment

__all__ = ["Supervisor", "main"]

# docker/ starts the same; its test compares.
WEB = (
    "gunicorn cacheroute_web.wsgi --worker-class gthread --workers 1 --threads 32"
    " --graceful-timeout 5 --timeout 120 --no-control-socket"
)
WORKER = (
    "celery -A cacheroute_web worker --queues celery --hostname jobs@%h --pool prefork --concurrency 2"
    " --loglevel INFO --without-gossip --without-mingle"
)
WATCHER = (
    "celery -A cacheroute_web worker --queues watch --hostname watch@%h --pool solo --concurrency 1"
    " --loglevel INFO --without-gossip --without-mingle"
)
BEAT = "celery -A cacheroute_web beat"
WEB_SECONDS = 90.0  # until the page must answer
WORKER_SECONDS = 300.0  # until the worker must be ready: kernels compile at the first start


class Stopped(Exception):
    """A signal asked us to stop."""


class Signals:
    """INT, TERM and HUP become ``Stopped``, but only where we wait: never in the middle of starting something."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._reader, writer = os.pipe()
        for fd in (self._reader, writer):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup stays nohup
                signal.signal(number, self._note)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received = number

    def pause(self, seconds: float) -> None:
        """Sleep; raise ``Stopped`` at once when a signal has come or comes."""
        if self.received is None:
            select.select([self._reader], [], [], max(0.0, seconds))
            with contextlib.suppress(BlockingIOError):
                os.read(self._reader, 512)
        if self.received is not None:
            raise Stopped


def say(text: str) -> None:
    """Print a line at once; a terminal that has gone away must not keep us from stopping properly."""
    with contextlib.suppress(OSError, ValueError):
        print(text, flush=True)


class Supervisor:
    """Everything between taking the state folder and giving it up again."""

    def __init__(self, state: State, signals: Signals) -> None:
        self.state = state
        self.signals = signals
        self.began = time.monotonic()
        self.postgres: Postgres | None = None
        self.valkey: Valkey | None = None
        self.children: dict[str, Child] = {}
        self.env = {name: value for name, value in os.environ.items() if name != "CACHEROUTE_SUPERVISOR"}
        self.listener: socket.socket | None = None
        self._web_deadline = 0.0
        self._recorded: list[int] = []
        self._groups = state.home / "run" / "groups.json"
        self._worker_ready = state.home / "run" / "worker.ready"
        self._sources = Sources(CHECKOUT) if self.env.get("CACHEROUTE_ENV") == "dev" else None

    def run(self) -> None:
        """Start everything, announce the URL, watch until a signal comes (``Stopped``)."""
        reclaim(self._groups)
        self._listen()
        self.state.announce(self.url)
        self.state.trim_logs()
        self._environment()
        self._servers()
        self._define_children()
        warm = self.state.is_migrated(self.env["DATABASE_URL"])
        if warm:
            self._start("web")
        self._prepare(warm)
        say(f"CacheRoute Web is ready after {time.monotonic() - self.began:.1f} s; Ctrl-C stops it.")
        say(self.url)
        self._watch()

    @property
    def url(self) -> str:
        """Where a browser on this machine finds the console."""
        host, port = self._address
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    @property
    def _address(self) -> tuple[str, int]:
        if self.listener is None:
            raise ValueError("not listening yet")
        host, port = self.listener.getsockname()[:2]
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port  # noqa: S104  maps, does not bind

    def _listen(self) -> None:
        """Bind the port before anything else; gunicorn inherits the socket, so nobody can take it in between."""
        host = os.environ.get("BIND") or "127.0.0.1"
        text = os.environ.get("PORT") or "8000"
        if not text.isdecimal() or int(text) > 65535:
            raise Refused(f"PORT={text}: expected a number from 0 to 65535")
        self.listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.listener.bind((host, int(text)))
            self.listener.listen(256)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise Refused(
                    f"port {text} on {host} is taken by another program; choose another: make run PORT=8001"
                ) from error
            raise Refused(f"cannot listen on {host} port {text}: {error.strerror}") from error

    def _environment(self) -> None:
        home = self.state.home
        for name, value in self.state.secrets().items():
            self.env.setdefault(name, value)
        for name, value in environment(home).items():
            self.env.setdefault(name, value)
        self.env |= {
            "CACHEROUTE_HOME": str(home),
            "CACHEROUTE_WORKER_READY_FILE": str(self._worker_ready),
            "PYTHONUNBUFFERED": "1",
        }

    def _servers(self) -> None:
        home, pause = self.state.home, self.signals.pause
        if not self.env.get("DATABASE_URL"):
            self.postgres = Postgres(home / "postgres", log=self.state.log("postgres"), pause=pause)
            if not (self.postgres.data / "PG_VERSION").exists():
                say("Making the database")
            self.postgres.start()
            self.env["DATABASE_URL"] = self.postgres.url
            if self.postgres.created:
                self.state.forget_database()
        if not self.env.get("BROKER_URL"):
            self.valkey = Valkey(home / "valkey", log=self.state.log("valkey"), pause=pause)
            self.valkey.start()
            self.env["BROKER_URL"] = self.valkey.url

    def _define_children(self) -> None:
        if self.listener is None:
            raise ValueError("not listening yet")
        fd = self.listener.fileno()
        self._define("web", f"{WEB} --bind fd://{fd}", pass_fds=(fd,))
        self._define(
            "worker",
            WORKER,
            stop_seconds=15.0,
            death_signal=signal.SIGKILL,  # its pool sees the pipe close; a warm shutdown would wait for the broker
        )
        env = {name: value for name, value in self.env.items() if name != "CACHEROUTE_WORKER_READY_FILE"}
        self._define("watcher", WATCHER, stop_seconds=15.0, death_signal=signal.SIGKILL, env=env)
        self._define("beat", BEAT, "--schedule", str(self.state.home / "run" / "beat-schedule"))

    def _define(
        self,
        name: str,
        command: str,
        *more: str,
        pass_fds: tuple[int, ...] = (),
        stop_seconds: float = 10.0,
        death_signal: signal.Signals = signal.SIGTERM,
        env: dict[str, str] | None = None,
    ) -> None:
        argv = [sys.executable, "-m", *command.split(), *more]
        log = self.state.log(name)
        self.children[name] = Child(name, argv, log, env or self.env, pass_fds, stop_seconds, death_signal)

    def _start(self, *names: str) -> None:
        if "web" in names:
            self._web_deadline = time.monotonic() + WEB_SECONDS
        for name in names:
            if self.children[name].process is None:
                self.children[name].start()
        self._record()

    def _record(self) -> None:
        pids = [child.process.pid for child in self.children.values() if child.process is not None]
        if pids != self._recorded:
            record(self._groups, pids)
            self._recorded = pids

    def _prepare(self, warm: bool) -> None:
        """Run ``prepare`` beside the starting services, until it is done and the page answers."""
        self._worker_ready.unlink(missing_ok=True)
        status_reader, status_writer = os.pipe()
        go_reader, go_writer = os.pipe()
        log = self.state.log("prepare")
        start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as errors:
            prepare = guarded(
                [sys.executable, "-m", "cacheroute_web.run.prepare", str(status_writer), str(go_reader)],
                stderr=errors,
                env=self.env,
                pass_fds=(status_writer, go_reader),
            )
        os.close(status_writer)
        os.close(go_reader)
        try:
            while not select.select([status_reader], [], [], 0)[0]:
                self.signals.pause(0.02)
            if os.read(status_reader, 100):
                if not warm:
                    self._start("worker", "web", "beat")
                    say("Starting the worker (the first start compiles the kernels)")
                    self._await_worker()
                    self._start("watcher")
                os.write(go_writer, b"g")
            answered = False
            while (status := prepare.poll()) is None or (status == 0 and not answered):
                if not answered and self.children["web"].process is not None:
                    answered = self._page_answers()
                    if answered:  # also while first_run waits for jobs that an earlier start left open
                        self._start("worker", "watcher", "beat")
                elif answered:
                    self._tend()
                self.signals.pause(0.05)
            if status != 0:
                raise Refused(f"preparing the database failed: {tail(log, start)} (log: {log})")
        finally:
            os.close(status_reader)
            os.close(go_writer)
            if prepare.poll() is None:
                prepare.kill()
            prepare.wait()

    def _await_worker(self) -> None:
        deadline = time.monotonic() + WORKER_SECONDS
        while not self._worker_ready.exists():
            self._still_alive("worker")
            if time.monotonic() > deadline:
                raise Refused(f"the worker was not ready in {WORKER_SECONDS:.0f} s (log: {self.state.log('worker')})")
            self.signals.pause(0.05)

    def _page_answers(self) -> bool:
        self._still_alive("web")
        if time.monotonic() > self._web_deadline:
            raise Refused(f"the page did not answer in {WEB_SECONDS:.0f} s (log: {self.state.log('web')})")
        return self._answers()

    def _still_alive(self, name: str) -> None:
        if not self.children[name].alive():
            log = self.state.log(name)
            raise Refused(f"{name} ended while starting: {tail(log)} (log: {log})")

    def _answers(self) -> bool:
        """Whether ``/healthz/`` answers; a refused host name is an answer too."""
        connection = http.client.HTTPConnection(*self._address, timeout=0.5)
        try:
            connection.request("GET", "/healthz/")
            return connection.getresponse().status < 500
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _watch(self) -> None:
        """Restart what dies, keep the logs small, until a signal comes."""
        trimmed = time.monotonic()
        while True:
            self.signals.pause(0.5)
            self._tend()
            if time.monotonic() - trimmed > 10:
                self.state.trim_logs()
                trimmed = time.monotonic()

    def _tend(self) -> None:
        for server in (self.postgres, self.valkey):
            if server is not None and server.process is not None and server.process.poll() is not None:
                say(f"{type(server).__name__} ended; starting it again, see {server.log}")
                server.revive()
        for child in self.children.values():
            if news := child.watch():
                say(news)
        if self._sources is not None and (changed := self._sources.changed()):
            self._reload(changed)
        self._record()

    def _reload(self, changed: str) -> None:
        """Restart every service that has loaded the code; the port stays open, so requests wait for the new one."""
        say(f"{changed} changed; restarting {', '.join(self.children)}")
        asked = time.monotonic()
        for child in self.children.values():
            child.ask_to_stop()
        # Kernels of another source have another cache.
        kernels = {name: environment(self.state.home)[name] for name in {"NUMBA_CACHE_DIR"} - os.environ.keys()}
        for child in self.children.values():
            child.env |= kernels
            if child.process is not None:
                child.finish(asked)
                child.start()

    def stop(self) -> None:
        """Stop every child in order; afterwards nothing of ours runs and the folder is free."""
        asked = time.monotonic()
        if self.listener is not None:
            self.listener.close()
        for child in self.children.values():
            child.ask_to_stop()
        for child in self.children.values():
            if not child.finish(asked):
                say(f"{child.name} did not stop in {child.stop_seconds:.0f} s and was killed; its job runs again")
        for server in (self.valkey, self.postgres):
            if server is not None:
                server.stop()
        self._groups.unlink(missing_ok=True)
        self._worker_ready.unlink(missing_ok=True)


def main() -> int:
    """Run until a signal; 0 after an orderly stop, 1 after one line that says what is wrong."""
    signals = Signals()
    state: State | None = None
    supervisor: Supervisor | None = None
    problem = ""
    try:
        state = State(Path(os.environ.get("CACHEROUTE_HOME") or CHECKOUT / "var"))
        supervisor = Supervisor(state, signals)
        supervisor.run()
    except Stopped:
        say("\nStopping")
    except (Refused, EmbeddedError) as error:
        problem = str(error)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        problem = f"disk full: {where}{error.strerror}" if error.errno == errno.ENOSPC else f"{where}{error.strerror}"
    except subprocess.SubprocessError as error:
        problem = str(error)
    finally:
        if supervisor is not None:
            with contextlib.suppress(OSError):  # a full disk must not leave children behind
                supervisor.stop()
        if state is not None:
            state.release()
    if problem:
        with contextlib.suppress(OSError):
            print(f"cacheroute: {problem}", file=sys.stderr, flush=True)
        return 1
    say("Stopped")
    return 0
