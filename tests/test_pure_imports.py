"""Imports of the pure packages: at the top of a module, and without circles."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("routing", "simulation", "analysis", "checklist", "ingest", "export")
OURS = ("planner", "cacheroute_web", "dashboards")
FILES = sorted(file for name in PACKAGES for file in (ROOT / "planner" / name).rglob("*.py"))


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in FILES}


def imported(tree: ast.AST) -> set[str]:
    """Our modules that a piece of code imports, those under ``if TYPE_CHECKING`` included."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys() or {node.module}
    return {name for name in names if name.split(".")[0] in OURS}


@pytest.mark.parametrize("file", FILES, ids=module_of)
def test_no_function_imports_a_module_of_the_project(file: Path) -> None:
    functions = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]
    assert not {(function.name, name) for function in functions for name in imported(function)}


def test_imports_of_the_pure_packages_form_no_circle() -> None:
    graph = {name: imported(ast.parse(file.read_text())) & MODULES.keys() for name, file in MODULES.items()}
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError and names the modules
