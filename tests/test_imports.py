"""Imports of the whole project: no circle between files, and none hidden in a function."""

from __future__ import annotations

import ast
import subprocess
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("benchmarks", "cacheroute_web", "dashboards", "planner", "tests")
# They run before Django or the servers are set up, so they import the rest when they are called.
ENTRY_POINTS = ("cacheroute_web/celery.py", "cacheroute_web/urls.py", "planner/apps.py", "tests/servers.py")


def modules() -> dict[str, Path]:
    """Name and file of each module that git tracks, migrations aside."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True)
    found = {}
    for name in listed.stdout.splitlines():
        path = Path(name)
        if path.parts[0] in PACKAGES and "migrations" not in path.parts and (ROOT / path).exists():
            parts = path.with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(node: ast.stmt, known: dict[str, Path]) -> list[str]:
    """Modules of this project that an import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        inner = [f"{node.module}.{alias.name}" for alias in node.names]
        names = [name if name in known else node.module for name in inner]
    else:
        return []
    return [name for name in names if name in known]


def imports_of(path: Path, known: dict[str, Path]) -> list[tuple[str, int, bool]]:
    """Imported module, line, and whether the statement is inside a function, for each import of a file."""
    found: list[tuple[str, int, bool]] = []

    def walk(node: ast.AST, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                found.extend((name, child.lineno, inside) for name in imported(child, known))
            walk(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    walk(ast.parse((ROOT / path).read_text()), False)
    return found


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Modules of one circle of imports, in order; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_files_import_each_other_in_a_circle():
    known = modules()
    graph = {name: {target for target, _, _ in imports_of(path, known)} - {name} for name, path in known.items()}
    assert len(graph) > 300
    assert circle(graph) == []


def test_a_circle_is_found():
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()})) == {"b", "c"}


def test_no_function_imports_a_module_of_the_project():
    known = modules()
    hidden = [
        f"{path}:{line} imports {target}"
        for path in known.values()
        if path.as_posix() not in ENTRY_POINTS and path.parts[0] != "benchmarks"  # benchmarks set Django up first
        for target, line, inside in imports_of(path, known)
        if inside
    ]
    assert hidden == []
