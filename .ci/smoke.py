"""Smoke of `make run`: a clean copy of HEAD, an empty home, a browser's steps by hand. Standard library only.

    python3 .ci/smoke.py [--keep]

Copies the committed tree into a temporary folder, starts it twice, signs in with the printed password, looks for the
sample plan, and checks that a SIGTERM to make leaves no process behind.
"""

# ruff: noqa: T201, S310
from __future__ import annotations

import html
import http.cookiejar
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLD_SECONDS = 600.0
WARM_SECONDS = 6.0


class Failed(Exception):
    """The smoke found something wrong."""


class Browser:
    """Cookies, forms and links: as much of a browser as signing in needs."""

    def __init__(self, base: str) -> None:
        self.base = base
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        )

    def open(self, path: str, form: dict[str, str] | None = None) -> tuple[str, str]:
        """Final address and text of a page; a form is posted."""
        address = urllib.parse.urljoin(self.base, path)
        data = urllib.parse.urlencode(form).encode() if form is not None else None
        request = urllib.request.Request(address, data, {"Referer": address})
        try:
            with self._opener.open(request, timeout=30) as answer:
                return answer.geturl(), answer.read().decode()
        except urllib.error.HTTPError as error:
            raise Failed(f"{address}: HTTP {error.code} {error.read()[:300]!r}") from error

    def sign_in(self, name: str, password: str) -> str:
        """Follow the redirect to the login form, fill it in; the page after it."""
        address, page = self.open("/")
        fields = dict.fromkeys(re.findall(r'name="(\w+)"', page), "")
        if "password" not in fields:
            raise Failed(f"{address} is no login form")
        for tag in re.findall(r"<input[^>]*type=\"hidden\"[^>]*>", page):
            found = dict(re.findall(r'(\w+)="([^"]*)"', tag))
            fields[found["name"]] = html.unescape(found.get("value", ""))
        fields |= {"username": name, "password": password}
        after, page = self.open(address, fields)
        if 'type="password"' in page:
            raise Failed(f"{name} could not sign in at {address}")
        print(f"signed in as {name}, now at {after}", flush=True)
        return page

    def find_plan(self, page: str) -> str:
        """Address of the first plan linked from the page, or from a page linked from it."""
        pattern = re.compile(r'href="([^"]*/plans/[1-9]\d*/)"')  # plan 0 is Flat-LB
        links = [html.unescape(link) for link in re.findall(r'href="(/[^"#]*)"', page)]
        for candidate in [None, *dict.fromkeys(links)]:
            if candidate and re.search(r"logout|/api/|/static/|\.\w+$", candidate):
                continue
            text = page if candidate is None else self.open(candidate)[1]
            if found := pattern.search(text):
                return found.group(1)
        raise Failed(f"no plan is linked from the first page or from {links}")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def processes_of(folder: Path) -> list[str]:
    """Living processes whose environment or command line names the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if os.fsencode(folder) in command + (entry / "environ").read_bytes() and int(entry.name) != os.getpid():
                found.append(f"{entry.name} {command.replace(bytes(1), b' ').decode(errors='replace')[:120]}")
    return found


@contextmanager
def running(copy: Path, env: dict[str, str], limit: float) -> Iterator[tuple[list[str], float]]:
    """`make run` until its URL; then its lines and seconds; afterwards SIGTERM to make, and nothing may be left."""
    began = time.monotonic()
    process = subprocess.Popen(
        ["make", "run"], cwd=copy, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    watchdog = threading.Timer(limit, os.killpg, (process.pid, signal.SIGTERM))
    watchdog.daemon = True
    watchdog.start()
    lines: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            shown = re.sub(r"^(\s+(?:admin|planner|approver)\s+)\S+", r"\1(shown once)", line.rstrip())
            print(f"  | {shown}", flush=True)
            if line.startswith("http://"):
                break
        else:
            raise Failed(f"make run ended with {process.wait()} before it said its address, within {limit:.0f} s")
        seconds = time.monotonic() - began
        watchdog.cancel()
        yield lines, seconds
    except BaseException:
        for log in sorted((copy / "var" / "log").glob("*.log")):
            print(f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-30:]), flush=True)
        raise
    finally:
        watchdog.cancel()
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise Failed("make run did not stop within 60 s of SIGTERM") from None
        finally:
            rest = process.stdout.read() if process.stdout is not None else ""
            print("".join(f"  | {line}\n" for line in rest.splitlines()), end="", flush=True)
    deadline = time.monotonic() + 5
    while (left := processes_of(copy)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        raise Failed(f"still running after the stop: {left}")
    print("stopped; no process is left", flush=True)


def copy_of_head(folder: Path) -> Path:
    """The committed tree, unpacked in the folder."""
    copy = folder / "cacheroute"
    copy.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", str(copy)], input=archive, check=True)
    return copy


def clean_environment(home: str) -> dict[str, str]:
    """Ours without what would point `make run` elsewhere, on a free port."""
    dropped = ("CACHEROUTE_", "DATABASE_", "BROKER_", "DJANGO_", "NUMBA_", "COV", "VIRTUAL_ENV", "MAKE", "MFLAGS")
    env = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return env | {"HOME": home, "PORT": str(free_port())}


def smoke(folder: Path) -> None:
    """The whole visit."""
    copy = copy_of_head(folder)
    home = folder / "home"
    home.mkdir()
    env = clean_environment(str(home))

    with running(copy, env, COLD_SECONDS) as (lines, seconds):
        print(f"cold start: {seconds:.1f} s", flush=True)
        passwords = dict(re.findall(r"^\s+(\w+)\s+(\S+)$", "\n".join(lines), re.MULTILINE))
        if not {"admin", "planner", "approver"} <= passwords.keys():
            raise Failed("the first start did not print the passwords of admin, planner and approver")
        browser = Browser(lines[-1])
        plan = browser.find_plan(browser.sign_in("admin", passwords["admin"]))
        address, page = browser.open(plan)
        for words in ("Checklist", "sha256", "Submit for review"):
            if words not in page:
                raise Failed(f"{address} is not the page of a plan that may be submitted: no {words!r}")
        print(f"the sample plan is at {address} ({len(page)} bytes)", flush=True)

    with running(copy, env, 60) as (lines, seconds):
        browser = Browser(lines[-1])
        visit = time.monotonic()
        browser.sign_in("admin", passwords["admin"])
        seconds_to_page = seconds + time.monotonic() - visit
        print(f"warm start: {seconds:.1f} s, first page signed in after {seconds_to_page:.1f} s", flush=True)
        browser.open(plan)
        if seconds > WARM_SECONDS:
            raise Failed(f"the second start took {seconds:.1f} s, more than {WARM_SECONDS:.0f} s")


def main() -> int:
    """Run the smoke in a temporary folder, which is removed unless ``--keep``."""
    folder = Path(tempfile.mkdtemp(prefix="cr-smoke-"))
    try:
        smoke(folder)
    except Failed as error:
        print(f"smoke: {error}", file=sys.stderr, flush=True)
        return 1
    finally:
        if "--keep" in sys.argv:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
