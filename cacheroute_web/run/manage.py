"""`make manage ARGS="..."`: a command of `manage.py` with the environment of the console that `make run` started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cacheroute_web.embedded import Postgres, Valkey
from cacheroute_web.run.state import CHECKOUT, Refused, environment, read_secrets


def main(arguments: list[str]) -> int:
    """Run the command; one clear line when there is no console to run it on."""
    home = Path(os.environ.get("CACHEROUTE_HOME") or CHECKOUT / "var").absolute()
    try:
        if not (home / "secrets.env").exists():
            raise Refused(f"no console has been started with the state folder {home} yet: make run")
        for name, value in {**read_secrets(home / "secrets.env"), **environment(home)}.items():
            os.environ.setdefault(name, value)
        os.environ["CACHEROUTE_HOME"] = str(home)
        if not os.environ.get("DATABASE_URL"):
            postgres = Postgres(home / "postgres")
            if not any(postgres.sockets.glob(".s.PGSQL.*")):
                raise Refused("the console is not running: start it with make run, then repeat this")
            os.environ["DATABASE_URL"] = postgres.url
        if not os.environ.get("BROKER_URL"):
            os.environ["BROKER_URL"] = Valkey(home / "valkey").url
    except (Refused, OSError) as error:
        print(f"cacheroute: {error}", file=sys.stderr)
        return 1
    from django.core.management import execute_from_command_line

    execute_from_command_line(["manage.py", *arguments])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
