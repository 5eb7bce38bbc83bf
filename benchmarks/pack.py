"""How near the floor packings come, and how long that takes: on random networks, or on problems in files.

Every answer is checked by brute force at random bindings: pairs that are live together disjoint, all inside
the arena, aligned.  The ratio is bytes of the arena over the floor, from the least extents far past what is
usual (n to 8192, b to 8192).

    python -m benchmarks.pack [--count 40] [--seed 0] [--effort normal] [FILE ...] [--json]
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.graphs_to_pack import branchy, transformer
from benchmarks.harness import parse_arguments, print_result
from symalloc.packing import read_problem
from symalloc.planner.packing.pack_problem import Packing, pack_problem
from symalloc.planner.packing.packing_problem import PackingProblem
from symalloc.planner.search.stacking_search import SearchBudget

WORST, MEAN = 1.02, 1.005
CHECKED = 6  # random bindings for each problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One problem; seconds are of search and proof together."""

    name: str
    buffers: int
    worst: float
    mean: float
    seconds: float


def broken(packing: Packing, random: Random) -> bool:
    """Whether two buffers overlap, one leaves the arena or is out of step, at some of a few bindings."""
    for _ in range(CHECKED):
        binding = {
            name: random.choice((1, 7, 64, random.randint(1, 5000))) for name in packing.problem.ranges
        }
        arena = packing.arena.evaluate(binding)
        spans = []
        for buffer in packing.problem.buffers:
            start = packing.offsets[buffer.name].evaluate(binding)
            end = start + buffer.size.evaluate(binding)
            if start < 0 or end > arena or start % buffer.alignment:
                return True
            spans.append((buffer, start, end))
        for (a, start, end), (b, begin, stop) in combinations(spans, 2):
            (lower, upper), (first, last) = a.live[0], b.live[0]
            if max(lower, first) < min(upper, last) and max(start, begin) < min(end, stop):
                return True
    return False


def measure(problems: Iterable[PackingProblem], budget: SearchBudget) -> tuple[list[Row], int]:
    """A row for each problem, and how many answers are wrong."""
    rows, wrong, random = [], 0, Random(budget.seed)
    for problem in problems:
        packing = pack_problem(problem, budget=budget)
        wrong += broken(packing, random)
        rows.append(
            Row(
                name=problem.name,
                buffers=len(problem.buffers),
                worst=packing.worst_ratio,
                mean=packing.mean_ratio,
                seconds=packing.seconds,
            )
        )
    return rows, wrong


def show(found: Mapping[str, Any]) -> None:
    """Print the figures."""
    rows, wrong = found["rows"], found["wrong"]
    print(f"{'problem':<24}{'buffers':>8}{'worst':>9}{'mean':>9}{'seconds':>9}")
    for row in rows:
        print(f"{row.name:<24}{row.buffers:>8}{row.worst:>9.4f}{row.mean:>9.4f}{row.seconds:>9.3f}")
    far = sum(row.worst > WORST or row.mean > MEAN for row in rows)
    seconds = [row.seconds for row in rows]
    print(
        f"{len(rows)} problems: {wrong} wrong, {far} beyond {WORST} at worst or {MEAN} in the mean; "
        f"{statistics.median(seconds):.3f} s in the median, {max(seconds):.3f} s at most"
    )


def main() -> int:
    """1 where an answer is wrong."""
    files = {"name": "files", "nargs": "*", "type": Path}
    efforts = ("normal", "quick", "thorough")
    options = parse_arguments(__doc__, files, count=40, seed=0, effort=efforts)
    seeds = range(options.seed, options.seed + options.count)
    problems = [read_problem(f) for f in options.files] or [
        make(s) for s in seeds for make in (branchy, transformer)
    ]
    rows, wrong = measure(problems, SearchBudget.of(options.effort, seed=options.seed))
    print_result({"wrong": wrong, "rows": rows}, options.json, show)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
