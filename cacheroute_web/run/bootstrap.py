"""Make the virtual environment from a hash-locked requirement set, then become the program that was asked for.

Standard library only, and no syntax newer than Python 3.6: an old interpreter must get as far as the line that
says it is too old.

    python3 cacheroute_web/run/bootstrap.py SET [MODULE ARGUMENT...]

``SET`` is ``run`` (the console alone), ``embedded`` (with PostgreSQL and Valkey), ``test`` or ``dev``; each contains
the ones before it. The environment carries a stamp with the sha256 of the lock it was made from, so a second start
skips the installation.
"""

# ruff: noqa: UP006, UP031, UP035, RUF005, SIM115, S606  (must run on interpreters that know no newer way)
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from typing import Any, Dict, List

OLDEST = (3, 11)
SETS = ("run", "embedded", "test", "dev")
INSTALL_BYTES = 2 * 1024**3  # free space wanted before an installation: the environment takes about 1 GB
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Refused(Exception):
    """Cannot go on; the message is one line for the person at the terminal."""


def check_python() -> None:
    """Refuse an interpreter that is too old, or one that cannot make virtual environments."""
    if sys.version_info < OLDEST:
        raise Refused(
            "Python %d.%d is too old: CacheRoute Web needs Python %d.%d or newer (try: make run PYTHON=python3.12)"
            % (sys.version_info[0], sys.version_info[1], OLDEST[0], OLDEST[1])
        )
    try:
        import ensurepip  # noqa: F401 - only to see that it is there
        import venv  # noqa: F401 - the same
    except ImportError:
        raise Refused(
            "this Python cannot make virtual environments: install its venv package (Debian, Ubuntu: apt-get install "
            "python%d.%d-venv)" % (sys.version_info[0], sys.version_info[1])
        ) from None


def lock_digests(root: str, name: str) -> Dict[str, str]:
    """Digests of the lock of a set and of the sets it contains."""
    found = {}
    for each in SETS[: SETS.index(name) + 1]:
        with open(os.path.join(root, "requirements", each + ".txt"), "rb") as file:
            found[each] = hashlib.sha256(file.read()).hexdigest()
    return found


def read_stamp(venv: str) -> Dict[str, str]:
    """What the environment was made from; empty when there is none."""
    try:
        with open(os.path.join(venv, "cacheroute-stamp.json")) as file:
            return dict(json.load(file))
    except (OSError, ValueError):
        return {}


def works(python: str) -> bool:
    """Whether the environment's interpreter still starts (its base may have been removed) and is new enough."""
    check = "import sys; sys.exit(sys.version_info < (%d, %d))" % OLDEST
    try:
        return subprocess.call([python, "-I", "-c", check], stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def run(command: List[str], what: str) -> None:
    """Run one installation step; its own last words become our one line."""
    env = dict(os.environ, UV_PYTHON_DOWNLOADS="never", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1")
    env.pop("VIRTUAL_ENV", None)
    # Its words go to a file that is shown only when it fails: pip's warnings would push ours away.
    result = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
    )
    if result.returncode != 0:
        lines = [line for line in result.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.lower().lstrip().startswith(("error", "oserror"))] or lines
        raise Refused("%s failed: %s" % (what, errors[-1].strip() if errors else "no message"))


def install(root: str, venv: str, name: str) -> None:
    """Make the environment where needed and install the set into it."""
    free = shutil.disk_usage(root).free
    if free < INSTALL_BYTES:
        raise Refused(
            "disk full: %d MB free in %s, the installation needs %d MB" % (free >> 20, root, INSTALL_BYTES >> 20)
        )
    python = os.path.join(venv, "bin", "python")
    uv = shutil.which("uv")
    if not works(python):
        say("Making the virtual environment %s" % venv)
        shutil.rmtree(venv, ignore_errors=True)
        run([sys.executable, "-m", "venv"] + (["--without-pip"] if uv else []) + [venv], "making the environment")
    lock = os.path.join(root, "requirements", name + ".txt")
    count = sum(1 for line in open(lock) if "==" in line and not line.startswith((" ", "#")))
    say("Installing %d packages with %s%s" % (count, "uv" if uv else "pip", "" if uv else " (about a minute)"))
    if uv:
        run(
            [uv, "pip", "install", "--quiet", "--compile-bytecode", "--require-hashes", "--python", python, "-r", lock],
            "uv pip install",
        )
    else:
        if subprocess.call(
            [python, "-I", "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ):
            run([python, "-I", "-m", "ensurepip"], "ensurepip")
        run([python, "-I", "-m", "pip", "install", "--quiet", "--require-hashes", "-r", lock], "pip install")


def prepare(root: str, venv: str, name: str) -> str:
    """Bring the environment up to the set, once at a time, and return its interpreter."""
    import fcntl

    python = os.path.join(venv, "bin", "python")
    digests = lock_digests(root, name)
    handle = os.open(root, os.O_RDONLY)  # the checkout itself is the lock: nothing is left behind
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("Waiting for another installation into %s" % venv)
            fcntl.flock(handle, fcntl.LOCK_EX)
        if read_stamp(venv).get(name) != digests[name] or not works(python):
            install(root, venv, name)
            path = os.path.join(venv, "cacheroute-stamp.json")
            with open(path + ".new", "w") as file:
                json.dump(digests, file)
            os.replace(path + ".new", path)
    finally:
        os.close(handle)
    return python


def say(text: str) -> None:
    """Print a progress line at once."""
    print(text, flush=True)


def interrupt(*_: Any) -> None:
    """Turn a signal into the exception that Ctrl-C raises."""
    raise KeyboardInterrupt


def main(argv: List[str]) -> int:
    """Prepare the set named first, then exec ``python -m`` with the rest, if any."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)  # as Ctrl-C: the running installation step is ended too
    try:
        check_python()
        name, command = argv[0], argv[1:]
        venv = os.environ.get("CACHEROUTE_VENV") or os.path.join(ROOT, ".venv")
        python = prepare(ROOT, venv, name)
    except Refused as error:
        print("cacheroute: %s" % error, file=sys.stderr)
        return 1
    except OSError as error:
        print("cacheroute: %s: %s" % (error.filename or "cannot prepare", error.strerror), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("cacheroute: stopped", file=sys.stderr)
        return 130
    if command:
        os.chdir(ROOT)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.environ.pop("PYTHONHOME", None)
        os.environ.pop("PYTHONSAFEPATH", None)
        if command[0] == "cacheroute_web.run":
            os.environ["CACHEROUTE_SUPERVISOR"] = "1"
        os.execv(python, [python, "-m"] + command)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
