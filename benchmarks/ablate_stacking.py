"""What each way to stack buffers of one arena is worth: random problems, whose sizes are formulas.

`few` are problems of 25 buffers, on which the search is done in full; `crowded` are of 400, of which no pairs
are looked at, as where thousands are live together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from statistics import mean
from time import process_time
from typing import Any

from benchmarks.harness import patched
from symalloc.planner import stack
from symalloc.planner.memory_plan import Buffer
from symalloc.size.expr import constant, symbol

N, M = symbol("n"), symbol("m")
SIZES = (64 * N, 128 * N, 192 * N, constant(64), constant(4096), 64 * N * N, 64 * M, 64 * N * M)
PROBLEMS = {"few": (25, 200), "crowded": (400, 5)}  # buffers, problems
STACKING: Mapping[str, Mapping[str, object]] = {
    "-": {},
    "greedy packing": {f"{stack.__name__}.packed_order": lambda problem, _sizes: [*range(len(problem))]},
    "local search": {f"{stack.__name__}._StackingSearch.improve": lambda _: False},
    "best fit through time": {
        f"{stack.__name__}.crowded_orders": lambda problem, _point: iter(
            [sorted(range(len(problem)), key=problem.begins.__getitem__)]
        )
    },
}
STACKING_COLUMNS = {
    "problems": "10",
    "without": "36",
    "above": ">14",
    "mean": ">8.3f",
    "worst": ">8.3f",
    "seconds": ">9.2f",
}


def stacking_rows() -> Iterator[dict[str, Any]]:
    """A row for each way and group: problems above their floor, height over floor at worst shapes."""
    for group, (length, tries) in PROBLEMS.items():
        budget = stack.SearchBudget.of("normal")
        budget = replace(budget, packing=0) if group == "crowded" else budget
        problems = [_problem(Random(seed), length) for seed in range(tries)]
        for without, stand_ins in STACKING.items():
            started = process_time()
            with patched(stand_ins):
                worst = [stack.search(buffers, {}, budget).score.worst for buffers in problems]
            above = sum(one > stack.PERFECT for one in worst)
            row = {"problems": group, "without": without, "above": f"{above} of {tries}"}
            yield {**row, "mean": mean(worst), "worst": max(worst), "seconds": process_time() - started}


def _problem(chance: Random, length: int) -> list[Buffer]:
    begins = [chance.randrange(length) for _ in range(length)]
    return [
        Buffer(
            id=i,
            name=f"b{i}",
            size=chance.choice(SIZES),
            live=((begin, begin + chance.randrange(1, max(length // 3, 2))),),
        )
        for i, begin in enumerate(begins)
    ]
