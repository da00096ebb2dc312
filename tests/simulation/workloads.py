"""Random workloads with shared prefixes, small enough to crowd a small cache."""

from __future__ import annotations

import numpy as np

from planner.simulation import EngineProfile, Trace


def random_trace(seed: int, requests: int, *, load: float = 3.0, keys: int = 6, block_tokens: int = 4) -> Trace:
    """Chained prompts: a key's prefix, then own blocks; now and then a whole prompt comes back."""
    rng = np.random.default_rng(seed)
    prefix = rng.integers(1, 5, keys)
    rows, key, prompt = [], [], []
    fresh = 1000
    for i in range(requests):
        if i and rng.random() < 0.2:
            again = int(rng.integers(0, i))
            rows.append(rows[again])
            key.append(key[again])
            prompt.append(prompt[again])
            continue
        k = int(rng.integers(0, keys))
        own = int(rng.integers(1, 5))
        rows.append([k * 10 + j for j in range(int(prefix[k]))] + list(range(fresh, fresh + own)))
        fresh += own
        key.append(k)
        prompt.append(len(rows[-1]) * block_tokens - int(rng.integers(0, block_tokens)))
    return Trace(
        np.cumsum(rng.exponential(1 / load, requests)),
        np.array(key),
        rows,
        np.array(prompt),
        rng.integers(1, 30, requests),
        block_tokens,
    )


def small_profile(cache_tokens: int | None = 80, **change: object) -> EngineProfile:
    """An engine whose cache holds only a few prompts."""
    constants = {
        "prefill_tokens_per_s": 150.0,
        "iteration_s": 0.011,
        "sequence_s": 0.0013,
        "context_token_s": 0.00017,
        "max_batched_tokens": 13,
        "max_sequences": 5,
    }
    return EngineProfile(name="small", cache_tokens=cache_tokens, **(constants | change))
