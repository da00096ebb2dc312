"""Engine constants of serving profiles: store them, and read them for simulations."""

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
    """Return the constants as stored, so a later release with other constants changes no fingerprinted result."""
    return EngineProfile(**profile.engine_constants)


def serving_profile(engine_profile: str, **overrides: Any) -> ServingProfile:
    """Return the stored profile of a named engine profile (created if new), or the fitted one of that name.

    Raises
    ------
    Invalid
        If no engine profile has that name.
    """
    if engine_profile in PROFILES:
        return stored_profile(PROFILES[engine_profile], **overrides)
    fitted = ServingProfile.objects.exclude(fit={}).filter(name=engine_profile).first()
    if fitted is None:
        known = ", ".join(profile_names())
        raise Invalid(f"no engine profile is named {engine_profile!r}; known: {known}", field="engine_profile")
    return fitted


def profile_names() -> list[str]:
    """Return the names of engine profiles a fleet can use: the built-in ones, then the fitted ones."""
    return [*PROFILES, *ServingProfile.objects.exclude(fit={}).values_list("name", flat=True)]


def stored_profile(profile: EngineProfile, *, fit: JsonObject | None = None, **overrides: Any) -> ServingProfile:
    """Return the serving profile with these constants; create it if new.

    Parameters
    ----------
    profile
        Constants of the engine.
    fit
        The fit that the constants come from; stored with a new profile, and no part of its identity.
    **overrides
        Columns in place of the properties that the engine profile names.

    Returns
    -------
    ServingProfile
        The stored row; equal columns give the same row.
    """
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
    # The source of fitted constants is not part of their identity.
    found, _ = ServingProfile.objects.get_or_create(fingerprint=digest(fields), defaults={**fields, "fit": fit or {}})
    return found
