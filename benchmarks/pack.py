"""How near the floor packings come, and how long that takes: on random networks, or on problems in files.

Every answer is checked by brute force at random bindings: pairs that are live together disjoint, all inside
the arena, aligned.  The ratio is bytes of the arena over the floor, from the least extents far past what is
usual (n to 8192, b to 8192).

    python -m benchmarks.pack [--count 40] [--seed 0] [--effort normal] [FILE ...] [--json]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, get_args

import click

from benchmarks.graphs_to_pack import branchy, transformer
from benchmarks.harness import json_option, print_table
from symalloc.planner.memory_plan import EffortName
from symalloc.planner.packing.packing_problem import Packing, PackingProblem, pack_problem
from symalloc.planner.stack import SearchBudget
from symalloc.session.planning import read_problem

WORST, MEAN = 1.02, 1.005
CHECKED = 6  # random bindings for each problem


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


def measure(problems: Iterable[PackingProblem], budget: SearchBudget) -> tuple[list[dict[str, Any]], int]:
    """A row for each problem, and how many answers are wrong; seconds are of search and proof together."""
    rows, wrong, random = [], 0, Random(budget.seed)
    for problem in problems:
        packing = pack_problem(problem, budget=budget)
        wrong += broken(packing, random)
        row = {"name": problem.name, "buffers": len(problem.buffers), "worst": packing.worst_ratio}
        rows.append({**row, "mean": packing.mean_ratio, "seconds": packing.seconds})
    return rows, wrong


def show(rows: list[dict[str, Any]], wrong: int) -> None:
    """Print the figures."""
    forms = {"name": "<24", "buffers": ">8", "worst": ">9.4f", "mean": ">9.4f", "seconds": ">9.3f"}
    print_table(forms, rows)
    far = sum(row["worst"] > WORST or row["mean"] > MEAN for row in rows)
    seconds = [row["seconds"] for row in rows]
    print(
        f"{len(rows)} problems: {wrong} wrong, {far} beyond {WORST} at worst or {MEAN} in the mean; "
        f"{median(seconds):.3f} s in the median, {max(seconds):.3f} s at most"
    )


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--count", default=40, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--effort", type=click.Choice(get_args(EffortName)), default="normal", show_default=True)
@json_option
def main(files: tuple[Path, ...], count: int, seed: int, effort: EffortName, as_json: bool) -> None:
    """Exit with 1 where an answer is wrong."""
    problems = [read_problem(f) for f in files] or [
        make(s) for s in range(seed, seed + count) for make in (branchy, transformer)
    ]
    rows, wrong = measure(problems, SearchBudget.of(effort, seed=seed))
    print(json.dumps({"wrong": wrong, "rows": rows})) if as_json else show(rows, wrong)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
