"""What each way to pack buffers of known sizes is worth: heights over the floor with and without it.

Problems are lifetimes of training steps, lifetimes and sizes of all magnitudes, and rectangles that are cut
without waste.

    python -m benchmarks.ablate_pack [--count 3]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from random import Random
from statistics import mean
from time import process_time
from typing import Any

import click
import numpy as np

from benchmarks.harness import patched, print_table
from symalloc.planner.packing.exact_packing import ExactPacking, SizedBuffers
from symalloc.planner.packing.packing_problem import PackingProblem, pack_problem, problem_of
from symalloc.planner.stack import SearchBudget

_GREEDY = "symalloc.planner.packing.exact_packing"
_PROBLEM = "symalloc.planner.packing.packing_problem"
_orders = SizedBuffers.orders

WITHOUT: Mapping[str, Mapping[str, object]] = {
    "nothing": {},
    "the order from the fullest moment": {
        f"{_GREEDY}.SizedBuffers.orders": lambda given: islice(_orders(given), 1, None)
    },
    "orders but by size": {
        f"{_GREEDY}.SizedBuffers.orders": lambda given: [(np.argsort(-given.sizes, kind="stable"), False)]
    },
    "rounds": {f"{_GREEDY}.ROUNDS": 0},
    "the exact method": {
        f"{_PROBLEM}.pack_exactly": lambda *_, **__: ExactPacking(
            offsets=None, height=0, optimal=False, steps=0
        )
    },
}


def _training(chance: Random, count: int) -> Iterator[tuple[int, int, int]]:
    sizes = (2621440, 20971520, 33554432, 41943040, 16384)
    for i in range(count // 6):
        yield i, count - i + chance.randrange(5), chance.choice(sizes)
    for _ in range(count - count // 6):
        begin = chance.randrange(count)
        yield begin, begin + chance.randrange(1, 12), chance.choice(sizes)


def _scattered(chance: Random, count: int) -> Iterator[tuple[int, int, int]]:
    for _ in range(count):
        begin = chance.randrange(count)
        yield begin, begin + int(2 ** chance.uniform(0, 10)), int(2 ** chance.uniform(4, 24))


def _cut(chance: Random, count: int) -> Iterator[tuple[int, int, int]]:
    pieces = [(0, count // 2, 0, 4096)]
    while len(pieces) < count:
        begin, end, low, high = pieces.pop(chance.randrange(len(pieces)))
        if chance.random() < 0.6 and high - low > 1:
            middle = chance.randrange(low + 1, high)
            pieces += [(begin, end, low, middle), (begin, end, middle, high)]
        elif end - begin > 1:
            middle = chance.randrange(begin + 1, end)
            pieces += [(begin, middle, low, high), (middle, end, low, high)]
        else:
            pieces.append((begin, end, low, high))
    yield from ((begin, end, high - low) for begin, end, low, high in pieces)


KINDS: Mapping[str, tuple[Callable[[Random, int], Iterator[tuple[int, int, int]]], int]] = {
    "training": (_training, 2000),
    "scattered": (_scattered, 4000),
    "cut": (_cut, 300),
}


def _problem(kind: str, seed: int) -> PackingProblem:
    make, count = KINDS[kind]
    rows = [
        {"id": i, "size": size, "lower": begin, "upper": end, "alignment": 1}
        for i, (begin, end, size) in enumerate(make(Random(seed), count))
    ]
    return problem_of({"name": f"{kind} {seed}", "buffers": rows})


@click.command()
@click.option("--count", default=3, show_default=True, help="Problems of each kind.")
def main(count: int) -> None:
    """Print the mean ratio of each kind of problem, and the seconds of all."""
    problems = {kind: [_problem(kind, seed) for seed in range(count)] for kind in KINDS}
    rows: list[dict[str, Any]] = []
    for name, stand_ins in WITHOUT.items():
        begin = process_time()
        with patched(stand_ins):
            found = {
                kind: mean(pack_problem(one, budget=SearchBudget.of("normal")).worst_ratio for one in some)
                for kind, some in problems.items()
            }
        rows.append({"without": name, **found, "seconds": process_time() - begin})
    print_table({"without": "<36", **dict.fromkeys(KINDS, ">11.5f"), "seconds": ">9.1f"}, rows)


if __name__ == "__main__":
    main()
