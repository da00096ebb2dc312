"""Docstrings of pure packages, services and selectors: sections of functions with three parameters or more."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("routing", "simulation", "analysis", "checklist", "ingest", "export")
# The packages that work with the database.
DATABASE_PACKAGES = ("services", "selectors")
FEWEST = 3  # parameters from which on the sections are required

Function = ast.FunctionDef | ast.AsyncFunctionDef


def public_functions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Function, list[str]]]:
    """Yield name, node and documented parameters of each public function and method."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, Function) and not node.name.startswith("_"):
            given = node.args
            names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            if prefix and names and names[0] in ("self", "cls"):
                names = names[1:]
            names += [given.vararg.arg] if given.vararg else []
            # The docstring lists the keys of a typed dictionary in place of the dictionary.
            typed = given.kwarg is not None and "Unpack" in ast.unparse(given.kwarg.annotation or ast.Constant(None))
            names += [given.kwarg.arg] if given.kwarg and not typed else []
            yield prefix + node.name, node, names


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions and classes inside it."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            todo.extend(ast.iter_child_nodes(node))


def sections_of(docstring: str) -> dict[str, str]:
    parts = re.split(r"^(\w+)\n-+\n", docstring, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def missing(function: Function, names: list[str]) -> list[str]:
    """Return the sections and parameters that the docstring of a function lacks."""
    sections = sections_of(ast.get_docstring(function) or "")
    documented = re.findall(r"^\**([\w, *]+?)(?: : .*)?$", sections.get("Parameters", ""), flags=re.MULTILINE)
    known = {name.strip(" *") for line in documented for name in line.split(",")}
    found = [f"Parameters: {name}" for name in names if name not in known]
    nodes = list(own_nodes(function))
    if any(isinstance(node, ast.Return) and node.value is not None for node in nodes) and "Returns" not in sections:
        found.append("Returns")
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes) and "Yields" not in sections:
        found.append("Yields")
    if any(isinstance(node, ast.Raise) for node in nodes) and "Raises" not in sections:
        found.append("Raises")
    return found


FUNCTIONS = [
    pytest.param(node, names, id=f"{file.relative_to(ROOT)}:{name}")
    for package in PACKAGES
    for file in sorted((ROOT / "planner" / package).rglob("*.py"))
    for name, node, names in public_functions(ast.parse(file.read_text()).body)
    if len(names) >= FEWEST
]


@pytest.mark.parametrize(("function", "names"), FUNCTIONS)
def test_docstring_has_every_parameter_and_the_sections_returns_yields_and_raises(
    function: Function, names: list[str]
) -> None:
    assert missing(function, names) == []


def faults_of(file: Path) -> list[str]:
    """Return file:line of each public function of three parameters or more, with what its docstring lacks."""
    return [
        f"{file.relative_to(ROOT)}:{node.lineno} {name}: no {', '.join(faults)}"
        for name, node, names in public_functions(ast.parse(file.read_text()).body)
        if len(names) >= FEWEST and (faults := missing(node, names))
    ]


@pytest.mark.parametrize("package", DATABASE_PACKAGES)
def test_public_functions_of_three_parameters_have_sections(package: str) -> None:
    files = sorted((ROOT / "planner" / package).rglob("*.py"))
    assert files
    found = [fault for file in files for fault in faults_of(file)]
    assert not found, "\n".join(found)


def test_a_function_without_sections_is_named_with_its_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "x.py").write_text('class A:\n    def f(self, a, b, c):\n        """Do it."""\n')
    assert faults_of(tmp_path / "x.py") == ["x.py:2 A.f: no Parameters: a, Parameters: b, Parameters: c"]


def test_a_missing_section_is_found() -> None:
    code = 'def f(a, b, *c, d):\n    """Do it.\n\n    Parameters\n    ----------\n    a, b : int\n        X.\n    """\n'
    code += "    if d:\n        raise ValueError\n    return a\n"
    ((_, function, names),) = public_functions(ast.parse(code).body)
    assert missing(function, names) == ["Parameters: d", "Parameters: c", "Returns", "Raises"]
