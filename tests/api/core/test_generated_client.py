"""A client generated from the committed document works against the server of `make run`."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from planner.services.access import tokens
from tests import factories as make
from tests.integration.console import Console

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.integration]
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "openapi.json"
CONFIG = "project_name_override: console-client\npackage_name_override: console_client\npost_hooks: []\n"


@pytest.fixture
def generated(tmp_path, monkeypatch):
    """The package, generated and importable."""
    (tmp_path / "config.yml").write_text(CONFIG)
    done = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", "generate", "--path", str(DOCUMENT), "--meta", "none",
         "--output-path", str(tmp_path / "console_client"), "--config", str(tmp_path / "config.yml")],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr, done.stdout + done.stderr
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.startswith("console_client")]:
        del sys.modules[name]


def operation(tag, name):
    return importlib.import_module(f"console_client.api.{tag}.{name}")


def test_it_lists_reads_follows_the_table_and_falls_back(generated, cast, fleet):
    plan = make.submitted_plan(cast, fleet)
    _, secret = tokens.create_token(acting_user=cast.root, name="t", scopes=["read", "route", "deploy"])
    with Console(secret) as console:
        from console_client import AuthenticatedClient
        from console_client.models import ReasonInputRequest, RolloutStateEnum

        client = AuthenticatedClient(f"http://127.0.0.1:{console.port}", token=secret, prefix="Token")
        plans = operation("plans", "plans_list").sync(client=client)
        assert {row.id for row in plans.results} >= {plan.pk}
        one = operation("plans", "plans_retrieve").sync_detailed(plan.pk, client=client)
        assert one.headers["ETag"].removeprefix("W/") == f'"{plan.version}"'  # packed on the way
        assert (one.parsed.number, one.parsed.state) == (plan.number, "in_review")
        (evaluation,) = operation("gates", "gates_list").sync(client=client, plan=plan.pk).results
        assert evaluation.passed is True
        rollout = operation("fleets", "fleets_fall_back_create").sync(
            fleet.slug, client=client, body=ReasonInputRequest(reason="generated")
        )
        assert rollout.state == RolloutStateEnum.ACTIVE
        missing = operation("plans", "plans_retrieve").sync_detailed(10**9, client=client)
        assert missing.status_code == 404
