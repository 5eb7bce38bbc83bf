"""The bytes that each path takes at some moment, found block by block, against all paths one by one."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np

from symalloc.planner.buffers.call_bytes import limits
from symalloc.program.control_flow import ControlFlowGraph, control_flow_graph
from tests.planner.random_programs import random_program
from tests.scale import tries

MOST_IFS = 6


def brute(cfg: ControlFlowGraph, steps: list[int], need: np.ndarray) -> np.ndarray:
    """The least over all paths through each point of what is taken at most on one."""
    conditions = cfg.paths
    found = np.full(len(steps), np.inf)
    for sides in product((True, False), repeat=len(cfg.joins)):
        taken = set(zip(cfg.joins, sides, strict=True))
        on = [row for row, step in enumerate(steps) if conditions[step] <= taken]
        found[on] = np.minimum(found[on], need[on].max())
    return found


def test_blocks_give_what_all_paths_give() -> None:
    branching = 0
    for seed in range(tries(60, 600)):
        cfg = control_flow_graph(random_program(seed).functions["main"])
        if not 0 < len(cfg.joins) <= MOST_IFS:
            continue
        branching += 1
        random = Random(seed)
        steps = sorted(number for number, _ in cfg.instructions)
        need = np.array([[random.randint(0, 9), random.choice((0, 0, 50))] for _ in steps], dtype=np.float64)
        conditions = cfg.paths
        routes = [tuple((0, branch, side) for branch, side in sorted(conditions[step])) for step in steps]
        distinct = list(dict.fromkeys(routes))
        found = limits(need, distinct, np.array([distinct.index(route) for route in routes]))
        for column in range(need.shape[1]):
            assert found[:, column].tolist() == brute(cfg, steps, need[:, column]).tolist()
    assert branching > 10
