"""`make manage` without a console to work on."""

import os
import subprocess
import sys

from cacheroute_web.run.state import CHECKOUT


def run(home, *arguments):
    env = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "BROKER_URL", "CACHEROUTE_SECRET_KEY")}
    return subprocess.run(
        [sys.executable, "-m", "cacheroute_web.run.manage", *arguments],
        cwd=CHECKOUT, env=env | {"CACHEROUTE_HOME": str(home)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_folder_that_no_console_used_gets_one_line(tmp_path):
    done = run(tmp_path, "check")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "make run" in done.stderr


def test_a_console_that_is_not_running_gets_one_line(tmp_path):
    (tmp_path / "secrets.env").write_text("CACHEROUTE_SECRET_KEY=x\n")
    done = run(tmp_path, "check")
    assert done.returncode == 1
    assert "not running" in done.stderr
    assert done.stderr.count("\n") == 1
