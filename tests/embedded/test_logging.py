"""One formatter for structlog and the standard library."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.servers import CHECKOUT

CODE = """
import logging, logging.config, sys
import structlog
from cacheroute_web.logging import logging_config
logging.config.dictConfig(logging_config(sys.argv[1]))
structlog.get_logger("planner.plans").info("plan built", plan=11)
logging.getLogger("django.request").warning("Not Found: %s", "/x/")
try:
    1 / 0
except ZeroDivisionError:
    structlog.get_logger("planner").exception("crash")
"""


def lines(environment: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", CODE, environment], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert result.stdout == ""
    return result.stderr.splitlines()


@pytest.mark.parametrize("environment", ["production", "run"])
def test_services_log_one_json_object_a_line(environment: str) -> None:
    first, second, third = map(json.loads, lines(environment))
    assert (first["event"], first["plan"], first["level"], first["logger"]) == (
        "plan built", 11, "info", "planner.plans"
    )  # fmt: skip
    assert first["timestamp"].endswith("Z")
    assert (second["event"], second["level"]) == ("Not Found: /x/", "warning")
    assert third["exception"][0]["exc_type"] == "ZeroDivisionError"


def test_tests_log_lines_for_people() -> None:
    text = "\n".join(lines("test"))
    assert "plan built" in text
    assert not text.startswith("{")
    assert "ZeroDivisionError" in text
