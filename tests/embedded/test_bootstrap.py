"""The bootstrap: the interpreters it refuses, and when it installs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cacheroute_web.run import bootstrap
from tests.servers import CHECKOUT

SCRIPT = CHECKOUT / "cacheroute_web" / "run" / "bootstrap.py"


def old_pythons() -> list[str]:
    """Interpreters older than 3.11 on this machine, oldest names first."""
    names = [f"python3.{minor}" for minor in range(6, 11)]
    found = [str(path) for path in (Path.home() / ".pyenv" / "versions").glob("3.*/bin/python")]
    found += [path for name in names if (path := shutil.which(name))]
    check = "import sys; sys.exit(not ((3, 6) <= sys.version_info < (3, 11)))"
    return [path for path in found if subprocess.run([path, "-c", check], capture_output=True).returncode == 0]


def test_an_old_python_gets_one_clear_line() -> None:
    pythons = old_pythons()
    if not pythons:
        pytest.skip("no Python older than 3.11 on this machine")
    for python in pythons:
        result = subprocess.run([python, str(SCRIPT), "run"], capture_output=True, text=True, check=False)
        assert result.returncode == 1
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert "is too old: CacheRoute Web needs Python 3.11 or newer" in result.stderr


def test_a_stamped_environment_is_used_as_it_is(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    stamp = venv / "cacheroute-stamp.json"
    stamp.write_text(json.dumps(bootstrap.lock_digests(str(CHECKOUT), "test")))
    result = subprocess.run(
        [sys.executable, str(SCRIPT), "run", "platform"],
        env=os.environ | {"CACHEROUTE_VENV": str(venv)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "Installing" not in result.stdout


@pytest.mark.parametrize("name", bootstrap.SETS)
def test_the_stamp_of_a_set_covers_the_sets_it_contains(name: str) -> None:
    digests = bootstrap.lock_digests(str(CHECKOUT), name)
    assert list(digests) == list(bootstrap.SETS[: bootstrap.SETS.index(name) + 1])
    assert all(len(digest) == 64 for digest in digests.values())


def test_a_failing_installer_becomes_one_line(tmp_path: Path) -> None:
    """A root whose lock has a hash that no package has."""
    for part in ("requirements", "cacheroute_web/run"):
        (tmp_path / part).mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "cacheroute_web" / "run")
    (tmp_path / "requirements" / "run.txt").write_text(
        f"no-such-thing @ file://{tmp_path}/x.whl --hash=sha256:{0:064}\n"
    )
    result = subprocess.run(
        [sys.executable, str(tmp_path / "cacheroute_web" / "run" / "bootstrap.py"), "run"],
        env=os.environ | {"CACHEROUTE_VENV": sys.prefix},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr.startswith("cacheroute: ")
    assert "install failed" in result.stderr
    assert result.stderr.count("\n") == 1
    stamp = bootstrap.read_stamp(sys.prefix)
    assert stamp.get("run") != bootstrap.lock_digests(str(tmp_path), "run")["run"]
