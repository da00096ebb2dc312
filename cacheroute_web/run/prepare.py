"""Migrate and make the first accounts and the sample, in one process: each start of Django costs a second.

    python -m cacheroute_web.run.prepare STATUS_FD GO_FD

Writes ``migrated`` to the first descriptor when the database is up to date, waits for the second to say that a worker
runs, then calls the management command ``first_run`` (until it has completed once), whose words go to the terminal.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cacheroute_web.run.state import migration_stamp


def migrate(home: Path) -> bool:
    """Apply what is missing; whether anything was. The full command also runs when the last one did not complete."""
    from django.core.management import call_command
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    stamp_file = home / "run" / "migrated"
    stamp = migration_stamp(os.environ["DATABASE_URL"])
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing or not stamp_file.exists() or stamp_file.read_text() != stamp:
        print(f"Preparing the database ({len(missing)} migrations)", flush=True)
        call_command("migrate", interactive=False, verbosity=0)
        stamp_file.write_text(stamp)
    return bool(missing)


def main(status_fd: int, go_fd: int) -> None:
    """See the module's words."""
    import django
    from django.core.management import call_command

    django.setup()
    changed = migrate(Path(os.environ["CACHEROUTE_HOME"]))
    os.write(status_fd, b"migrated\n")
    os.close(status_fd)
    if os.read(go_fd, 1) != b"g":
        sys.exit("prepare: the supervisor is gone")
    # Once it has completed on this database it has nothing to do, and its imports would cost every start seconds.
    done = Path(os.environ["CACHEROUTE_HOME"]) / "run" / "first-run"
    stamp = migration_stamp(os.environ["DATABASE_URL"])
    if changed or not done.exists() or done.read_text() != stamp:
        call_command("first_run")
        done.write_text(stamp)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
