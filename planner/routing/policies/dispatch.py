"""The registry of policies, and the compiled switch from a policy's code to its rule."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numba import njit

from planner.routing.policies.base import CANDIDATES, UNCOUNTED, Policy

__all__ = ["RULES", "choose", "propose"]


def _register() -> list[type[Policy]]:
    """Return every concrete policy of this package by rank, module name and class name; number them."""
    kinds: dict[str, type[Policy]] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules([str(Path(__file__).parent)])):
        if module == "dispatch":
            continue
        members = vars(importlib.import_module(f"{__package__}.{module}"))
        for name, kind in sorted(members.items()):
            if inspect.isclass(kind) and issubclass(kind, Policy) and hasattr(kind, "rule"):
                kinds.setdefault(name, kind)
    rules = sorted(kinds.values(), key=lambda kind: kind.rank)
    for code, kind in enumerate(rules):
        kind.code = code
    return rules


RULES = _register()
_names = [policy.name for kind in RULES for policy in kind.variants()]
if len(set(_names)) < len(_names):
    raise ValueError(f"policies: two have one name among {', '.join(sorted(_names))}")


def _switch(rules: Mapping[int, Callable[..., Any]]) -> Callable[..., Any]:
    """Compile ``code == 0 ? rules[0] : code == 1 ? rules[1] : ...`` as one function without nested calls."""
    names: dict[str, Any] = {f"rule_{code}": rule for code, rule in rules.items()}
    lines = ["def pick(tables, signals, key, rng):"]
    for code in rules:
        lines += [f"    if tables.code == {code}:", f"        return rule_{code}(tables, signals, key, rng)"]
    lines.append(f"    return rule_{code}(tables, signals, key, rng)")
    exec("\n".join(lines), names)  # noqa: S102 - the text holds whole numbers only; a chain of closures would compile level by level
    return njit(error_model="numpy", **UNCOUNTED)(names["pick"])


choose = _switch({code: kind.rule for code, kind in enumerate(RULES)})
propose = _switch({code: kind.propose for code, kind in enumerate(RULES) if kind.looks == CANDIDATES})
