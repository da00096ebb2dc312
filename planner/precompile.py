"""Compile the numba kernels before a process forks workers or serves requests."""

from __future__ import annotations

import numpy as np

from planner.analysis import available_tokens
from planner.routing import POLICIES, build_table, replan
from planner.simulation import PROFILES, replay
from planner.simulation.synthetic import synthetic_trace

__all__ = ["compile_kernels"]


def compile_kernels() -> None:
    """Compile every kernel of planning and replay, or load it from numba's cache, by work on three keys."""
    rates = np.array([3.0, 2.0, 1.0])
    table = build_table(rates, destinations=2, q_cap=2.0, slots=4)
    replan(table, rates[::-1].copy(), q_cap=2.0, slots=4, max_imbalance_factor=1.0)
    build_table(
        rates,
        destinations=2,
        q_cap=2.0,
        slots=2,
        admission="density",
        prefix_tokens=[1.0, 2.0, 3.0],
        token_budget=3.0,
        tenants=[0, 0, 1],
        tenant_quota=[1, 1],
    )
    trace = synthetic_trace(rates, requests=2, active_keys=3, load_rps=1.0, seed=1)
    available_tokens(*trace.blocks, trace.prompt_tokens, trace.block_tokens)
    profile = next(iter(PROFILES.values()))
    for policy in POLICIES.values():
        replay(trace, policy=policy, destinations=2, profile=profile, table=table if policy.needs_table else None)
