"""The knapsack of the exact admission as a mixed-integer programme, solved by HiGHS through scipy."""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from planner.routing.knapsack import Knapsack


def highs_value(problem: Knapsack) -> float:
    """Return the value of the best set of keys, to proven optimality; limits of tenants are left out.

    Raises
    ------
    RuntimeError
        When HiGHS ends without an optimum.
    """
    rows, limits = [problem.sizes / problem.slots], [1.0]
    if len(problem.cost):
        rows.append(problem.cost / problem.token_budget)
        limits.append(1.0)
    solved = milp(
        -problem.values,
        integrality=np.ones(len(problem.values)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(csr_array(np.vstack(rows)), ub=np.array(limits)),
        options={"mip_rel_gap": 0.0},
    )
    if solved.status != 0:
        raise RuntimeError(f"HiGHS: {solved.message}")
    return float(-solved.fun)
