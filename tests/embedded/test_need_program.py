"""Tests that need a system program say so, and are counted."""

import pytest

from tests import servers


def test_a_program_on_root_s_path_only_is_found() -> None:
    assert servers.need_program("unshare").endswith("unshare")


def test_a_missing_program_skips_and_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(servers.PACKAGES, "no-such-program", "no-such-package")
    monkeypatch.delenv("CACHEROUTE_REQUIRE_PROGRAMS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs no-such-program: apt-get install no-such-package"):
        servers.need_program("no-such-program")


def test_a_missing_program_fails_where_programs_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(servers.PACKAGES, "no-such-program", "no-such-package")
    monkeypatch.setenv("CACHEROUTE_REQUIRE_PROGRAMS", "1")
    with pytest.raises(pytest.fail.Exception, match="needs no-such-program"):
        servers.need_program("no-such-program")
