"""Kernel calls in another order: what a call holds then, what stays where it is, and the same bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from random import Random

import pytest
import tvm
from tvm import relax

from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.timeline import Timeline
from symalloc.planner.memory_plan import PlanOptions
from symalloc.relax.extract import extract
from symalloc.relax.files.load import lower_or_refuse, plan_or_refuse
from symalloc.relax.shrink.written_over import order_for_memory
from tests.relax.built import EFFECTS, graph, rows
from tests.relax.shrink.compared import outputs
from tests.scale import tries

X = rows(5, 8)
BUMP = """# script
@T.prim_func(private=True, s_tir=True)
def bump(a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, {0}), "float32")
    for i, j in T.grid(n, {0}):
        A[i, j] = A[i, j] + T.float32(1)
"""
WIDER = relax.const(rows(8, 64))


def network(seed: int) -> tvm.IRModule:
    """A random graph of wide and narrow tensors, some of them written in place; what is left is summed up."""
    random = Random(seed)

    def write(emit: Callable[[relax.Expr], relax.Var], x: relax.Var) -> relax.Expr:
        made = [x]
        for _ in range(random.randint(4, 9)):
            one = random.choice(made)
            width = int(one.ty.shape[1])
            kind = random.choice(("wide", "narrow", "same", "in place"))
            if kind == "wide" and width == 8:
                made.append(emit(relax.op.matmul(one, WIDER)))
            elif kind == "narrow" and width == 64:
                column = emit(relax.op.reshape(relax.op.sum(one, axis=1), (one.ty.shape[0], 1)))
                made.append(emit(relax.op.broadcast_to(column, x.ty.shape)))
            elif kind == "in place" and one is not x:
                kernel = emit.__self__.add_func(tvm.script.from_source(BUMP.format(width)), "bump")  # type: ignore[attr-defined]
                made.remove(one)
                made.append(emit(relax.op.call_tir_inplace(kernel, one, 0, one.ty)))
            else:
                made.append(emit(relax.op.exp(relax.op.negative(one))))
        sums = [emit(relax.op.sum(one, axis=1)) for one in made]
        return reduce(lambda total, one: emit(relax.op.add(total, one)), sums)

    return graph(write, x=("n", 8))


def ordered(module: tvm.IRModule) -> tuple[tvm.IRModule, Sequence[str]]:
    analyses = analyse(extract(module, name="module", stage="CallTIRRewrite", handles=True))
    found, names = order_for_memory(module, analyses)
    return found, [*names]


def peak(module: tvm.IRModule, n: int) -> int:
    return Timeline.of(extract(module, name="module"), "main").peak({"n": n}) or 0


def test_the_tensor_that_needs_most_is_made_first_and_let_go() -> None:
    def write(emit: Callable[[relax.Expr], relax.Var], x: relax.Var) -> relax.Expr:
        wide = [emit(relax.op.matmul(one, WIDER)) for one in (x, emit(relax.op.exp(x)))]
        return relax.op.add(*(emit(relax.op.sum(one, axis=1)) for one in wide))

    given = lower_or_refuse(graph(write, x=("n", 8)), "llvm", "default")
    found, names = ordered(given)
    assert names == ["main"]
    assert peak(given, 64) == 64 * (32 + 2 * 256)
    assert peak(found, 64) == 64 * (32 + 256)
    assert ordered(found)[1] == []  # it is as good as it gets
    planned = plan_or_refuse(given, "llvm", PlanOptions(shrink="safe")).module
    assert outputs(planned, "main", [X]) == outputs(given, "main", [X])


@pytest.mark.parametrize("module", [EFFECTS.Prints, EFFECTS.Cache, EFFECTS.GivenCache])
def test_what_has_effects_stays_where_it_is(module: tvm.IRModule) -> None:
    given = lower_or_refuse(module, "llvm", "default")
    assert ordered(given)[1] == []


@pytest.mark.parametrize("seed", range(tries(12, 200)))
def test_random_graphs_give_the_same_and_hold_no_more(seed: int) -> None:
    given = lower_or_refuse(network(seed), "llvm", "default")
    found, _ = ordered(given)
    assert all(peak(found, n) <= peak(given, n) for n in (1, 64, 1024))
    right = outputs(given, "main", [X])
    assert outputs(found, "main", [X]) == right
    assert outputs(plan_or_refuse(given, "llvm", PlanOptions(shrink="safe")).module, "main", [X]) == right


def test_random_graphs_are_put_in_other_orders() -> None:
    changed = [seed for seed in range(12) if ordered(lower_or_refuse(network(seed), "llvm", "default"))[1]]
    assert len(changed) >= 3
