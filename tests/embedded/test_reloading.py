"""Changes of the source that `make dev` restarts its services for."""

from __future__ import annotations

import os

import pytest

from cacheroute_web.run.reloading import Sources


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "planner").mkdir()
    (tmp_path / "planner" / "a.py").write_text("a = 1\n")
    return tmp_path


def test_files_that_nobody_touched_are_not_changed(checkout):
    sources = Sources(checkout, every_s=0)
    (checkout / "planner" / "notes.txt").write_text("no source")
    assert sources.changed() == ""


def test_a_changed_added_or_removed_file_is_named_once(checkout):
    sources = Sources(checkout, every_s=0)
    os.utime(checkout / "planner" / "a.py", ns=(1, 1))
    assert sources.changed() == "planner/a.py"
    assert sources.changed() == ""
    (checkout / "planner" / "b.py").write_text("")
    assert sources.changed() == "planner/b.py"
    (checkout / "planner" / "a.py").unlink()
    assert sources.changed() == "planner/a.py"


def test_the_files_are_not_read_again_before_the_interval_is_over(checkout):
    sources = Sources(checkout, every_s=3_600)
    os.utime(checkout / "planner" / "a.py", ns=(1, 1))
    assert sources.changed() == ""
