"""What TVM's pooled allocator keeps, beside an allocator that does so."""

from __future__ import annotations

import random
from collections import defaultdict

from symalloc.planner.memory_report.function_report import PAGE, kept_bytes
from symalloc.size.expr import Expr, symbol
from tests.report.plan_samples import timeline
from tests.scale import tries

N = symbol("n")


def held_alone(*sizes: Expr | int) -> list[tuple[Expr | int, int, int, str]]:
    """Arenas that are held all together."""
    return [(size, index, len(sizes), "storage") for index, size in enumerate(sizes)]


def test_blocks_are_kept_by_size_and_given_out_again_within_a_call() -> None:
    draw = random.Random(3)
    for _ in range(tries(50, 500)):
        held = []
        for begin in range(4):
            size = draw.choice((64, 4096, 10000)) * N + draw.choice((0, 0, draw.randrange(9000)))
            held.append((size, begin, draw.randrange(begin + 1, 6), "storage"))
        bindings = [{"n": draw.randrange(0, 9)} for _ in range(draw.randrange(2, 6))]
        free: defaultdict[int, int] = defaultdict(int)
        taken = 0
        for at in bindings:
            pages = [-(-size.evaluate(at) // PAGE) for size, *_ in held]
            for step in range(7):
                for size, (_, _, end, _) in zip(pages, held, strict=True):
                    free[size] += end == step
                for size, (_, begin, *_) in zip(pages, held, strict=True):
                    if begin == step and free[size]:
                        free[size] -= 1
                    elif begin == step:
                        taken += size * PAGE
        assert kept_bytes(timeline(*held), bindings) == taken  # type: ignore[arg-type]


def test_what_is_constant_or_unknown_is_not_counted() -> None:
    both = [{"n": 1}, {"n": 2}]
    assert kept_bytes(timeline(*held_alone(64)), both) is None  # type: ignore[arg-type]
    assert kept_bytes(timeline(*held_alone(64 * N)), both[:1]) is None  # type: ignore[arg-type]
    assert kept_bytes(timeline(*held_alone(64 * symbol("m"))), both) is None  # type: ignore[arg-type]
    assert kept_bytes(timeline(*held_alone(PAGE * N, 1)), both) == 2 * PAGE + 2 * PAGE  # type: ignore[arg-type]
