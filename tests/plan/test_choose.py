from __future__ import annotations

from symalloc.plan.choose import choose, representatives
from symalloc.plan.interference import interference
from symalloc.plan.model import Buffer
from symalloc.plan.stacking import Stacking, stack
from symalloc.program.model import Block, Function, TupleValue
from symalloc.program.types import TupleType
from symalloc.size.expr import Expr, constant, symbol

N = symbol("n")


def buffer(id_: int, size: Expr, begin: int, end: int) -> Buffer:
    return Buffer(id=id_, name=f"b{id_}", size=size, nbytes=size, live=((begin, end),))


# which of the two kinds is the larger changes at n = 64
BUFFERS = (
    buffer(0, constant(4096), 0, 2),
    buffer(1, 64 * N, 1, 4),
    buffer(2, constant(4096), 3, 6),
    buffer(3, 64 * N, 5, 8),
    buffer(4, constant(4096) + 64 * N, 7, 9),
)
PAIRS = interference(BUFFERS)
BINDINGS = [{"n": n} for n in (192, 64, 16, 1)]


def worst(stacking: Stacking) -> float:
    ratios = []
    for binding in BINDINGS:
        tops: dict[int, int] = {}
        for i in stacking.order:
            below = [tops[j] for j in stacking.below[i]]
            tops[i] = max(below, default=0) + BUFFERS[i].size.evaluate(binding)
        live = [
            sum(b.size.evaluate(binding) for b in BUFFERS if b.live[0][0] <= p < b.live[0][1])
            for p in range(9)
        ]
        ratios.append(max(tops.values()) / max(live))
    return max(ratios)


def test_no_single_packing_is_better_than_the_one_chosen() -> None:
    chosen = choose(BUFFERS, PAIRS, BINDINGS)
    single = [worst(stack(BUFFERS, PAIRS, binding)) for binding in BINDINGS]
    assert worst(chosen.stacking) == min(single)
    assert chosen.stacking == stack(BUFFERS, PAIRS, chosen.binding)


def function(upper: dict[str, int], lower: dict[str, int]) -> Function:
    return Function(
        name="f",
        params=(),
        body=Block(instructions=(), result=TupleValue(())),
        result_type=TupleType(fields=()),
        symbols={},
        declared_upper=upper,
        declared_lower=lower,
    )


def test_representatives_stay_within_declared_bounds() -> None:
    found = representatives(function({"n": 100}, {"n": 50}), BUFFERS)
    assert [b["n"] for b in found] == [100, 64, 50], "each binding once"


def test_a_static_function_has_one_representative() -> None:
    assert representatives(function({}, {}), BUFFERS[:1]) == ({},)
