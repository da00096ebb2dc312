"""A real web server on the test database, as a process of its own."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cacheroute_web.embedded.common import guarded, tail
from cacheroute_web.run.supervisor import WEB
from tests.integration.workers import environment_of_tests, wait_for


class Console:
    """The server of `make run`, with a token that every request carries."""

    def __init__(self, token: str, **environment: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cr-web-")
        self.log = Path(self._folder.name) / "web.log"
        self._token = token
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        program, *arguments = WEB.split()
        command = [sys.executable, "-m", program, *arguments, "--bind", f"127.0.0.1:{self.port}"]
        with self.log.open("ab") as log:
            self.process: subprocess.Popen[bytes] = guarded(
                command, stdout=log, env=environment_of_tests(**environment)
            )
        try:
            wait_for(lambda: self._answers() or self.process.poll() is not None, 60, "web answers")
            assert self.process.poll() is None, tail(self.log, 0)
        except BaseException:
            self.stop()
            raise

    def _answers(self) -> bool:
        try:
            return self.ask("GET", "/api/v1/fleets/")[0] == 200
        except OSError:
            return False

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON of the answer. A body that is no dict is sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        if isinstance(body, dict):
            body, headers["Content-Type"] = json.dumps(body), "application/json"
        try:
            connection.request(method, path, body, {"Authorization": f"Token {self._token}", **headers})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def stop(self) -> None:
        """End it and what it started."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._folder.cleanup()

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
