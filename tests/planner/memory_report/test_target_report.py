"""What TVM's pooled allocator keeps, beside an allocator that does so."""

from __future__ import annotations

import random
from collections import defaultdict

from symalloc.planner.memory_plan import Arena, Buffer, Placement
from symalloc.planner.memory_report.function_report import PAGE, kept_bytes
from symalloc.size.expr import ZERO, Expr, constant, symbol
from tests.scale import tries

N = symbol("n")


def arena(size: Expr, returned: bool = False) -> Arena:
    buffer = Buffer(id=0, name="a", size=size, nbytes=size, returned=returned)
    return Arena.of(size, [Placement(buffer, ZERO)])


def test_blocks_are_kept_by_size() -> None:
    draw = random.Random(3)
    for _ in range(tries(50, 500)):
        arenas = [arena(draw.choice((64, 4096, 10000)) * N + draw.randrange(0, 9000)) for _ in range(3)]
        bindings = [{"n": draw.randrange(0, 9)} for _ in range(draw.randrange(2, 6))]
        free: defaultdict[int, int] = defaultdict(int)
        taken = 0
        for at in bindings:
            sizes = [-(-each.size.evaluate(at) // PAGE) * PAGE for each in arenas]
            for size in sizes:
                if free[size]:
                    free[size] -= 1
                else:
                    taken += size
            for size in sizes:
                free[size] += 1
        assert kept_bytes(arenas, bindings) == taken


def test_what_is_constant_or_a_result_or_unknown_is_not_counted() -> None:
    both = [{"n": 1}, {"n": 2}]
    assert kept_bytes([arena(constant(64))], both) is None
    assert kept_bytes([arena(64 * N, returned=True)], both) is None
    assert kept_bytes([arena(64 * N)], both[:1]) is None
    assert kept_bytes([arena(64 * symbol("m"))], both) is None
    assert kept_bytes([arena(PAGE * N), arena(constant(1))], both) == 2 * PAGE + 2 * PAGE
