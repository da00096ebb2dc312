"""Engine constants of serving profiles: stored, and read for simulations."""

from __future__ import annotations

from typing import Any

from planner.digests import digest
from planner.errors import Invalid
from planner.models import (
    ServingProfile,
)
from planner.records import JsonObject
from planner.simulation import PROFILES, EngineProfile


def engine_of(profile: ServingProfile) -> EngineProfile:
    """The constants as they were stored: a later release with other ones changes no fingerprinted result."""
    return EngineProfile(**profile.engine_constants)


def serving_profile(engine_profile: str, **overrides: Any) -> ServingProfile:
    """The stored profile of a named engine profile, created when it is new; or the fitted one of that name.

    Raises
    ------
    Invalid
        When no engine profile has that name.
    """
    if engine_profile in PROFILES:
        return stored_profile(PROFILES[engine_profile], **overrides)
    fitted = ServingProfile.objects.exclude(fit={}).filter(name=engine_profile).first()
    if fitted is None:
        known = ", ".join(profile_names())
        raise Invalid(f"no engine profile is named {engine_profile!r}; known: {known}", field="engine_profile")
    return fitted


def profile_names() -> list[str]:
    """Engine profiles that a fleet may be served by: those that ship, then those that were fitted."""
    return [*PROFILES, *ServingProfile.objects.exclude(fit={}).values_list("name", flat=True)]


def stored_profile(profile: EngineProfile, *, fit: JsonObject | None = None, **overrides: Any) -> ServingProfile:
    """The serving profile with these constants, created when it is new."""
    facts = dict(profile.serving)
    fields = {
        "name": profile.name,
        "model": facts.get("model", profile.name),
        "precision": facts.get("precision", "unknown"),
        "tensor_parallel": int(facts.get("tensor_parallel", 1)),
        "context_tokens": int(facts.get("context_tokens", 131_072)),
        "batching_policy": f"continuous, {profile.max_batched_tokens} tokens, {profile.max_sequences} sequences",
        "cache_allocation": "unlimited" if profile.cache_tokens is None else f"{profile.cache_tokens} tokens of KV",
        "hardware": facts.get("hardware", "unknown"),
        "engine": facts.get("engine", "unknown"),
        "engine_profile": profile.name,
        "engine_constants": profile.as_dict(),
        **overrides,
    }
    # What constants were fitted to is not what they are.
    found, _ = ServingProfile.objects.get_or_create(fingerprint=digest(fields), defaults={**fields, "fit": fit or {}})
    return found
