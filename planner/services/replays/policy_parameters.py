"""Parameters of dispatch policies: named, typed and bounded by the policy's own dataclass."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from planner.errors import Invalid
from planner.routing import POLICIES, Policy

FIELD = "policy_parameters"
# Values of parameters by name, and those by policy.
Parameters = dict[str, Any]
PolicyParameters = dict[str, Parameters]


def known_parameters(name: str) -> Parameters:
    """The parameters of a policy and their defaults; empty for one without."""
    policy = POLICIES[name]
    # Each policy is a frozen dataclass, which its base class does not say.
    return {f.name: getattr(policy, f.name) for f in dataclasses.fields(policy) if f.init}  # type: ignore[arg-type]


def policy_of(name: str, parameters: Parameters) -> Policy:
    """The policy with these parameters in place of its defaults."""
    policy = POLICIES[name]
    # As above.
    return dataclasses.replace(policy, **parameters) if parameters else policy  # type: ignore[type-var]


def check_parameters(policies: list[str], given: PolicyParameters) -> PolicyParameters:
    """The parameters as they are stored; policies without any are left out.

    Raises
    ------
    Invalid
        Naming the policy and the parameter: a policy that is not replayed, a parameter that it does not have, a
        value of another type or out of the policy's bounds.
    """
    found: PolicyParameters = {}
    for name, values in given.items():
        if name not in policies:
            replayed = ", ".join(policies)
            raise Invalid(f"{name[:40]!r} is not among the policies replayed ({replayed})", field=_pointer(name))
        if not isinstance(values, dict):
            raise Invalid("a policy's parameters are named: {parameter: value}", field=_pointer(name))
        checked = {parameter: _checked(name, parameter, value) for parameter, value in values.items()}
        try:
            policy_of(name, checked)
        except (TypeError, ValueError) as error:
            # The message says which of several parameters it was.
            only = tuple(checked)[:1] if len(checked) == 1 else ()
            raise Invalid(f"{name}: {error}", field=_pointer(name, *only)) from error
        if checked:
            found[name] = checked
    return found


def _checked(name: str, parameter: str, value: Any) -> Any:
    known = known_parameters(name)
    field = _pointer(name, parameter)
    if parameter not in known:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise Invalid(f"{name} has no parameter {parameter[:40]!r}; {has}", field=field)
    wanted = typing.get_type_hints(type(POLICIES[name]))[parameter]
    kinds = typing.get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
    if type(value) in kinds or (value is None and type(None) in kinds):
        return value
    if float in kinds and type(value) is int and abs(value) < 2**53:
        return float(value)
    if int in kinds and type(value) is float and value.is_integer() and abs(value) < 2**53:
        return int(value)
    what = " or ".join(_WORDS.get(kind, kind.__name__) for kind in kinds)
    raise Invalid(f"{parameter} of {name} is {what}", field=field)


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "null"}


def _pointer(*names: str) -> str:
    return "/".join([FIELD, *(name.replace("~", "~0").replace("/", "~1") for name in names)])
