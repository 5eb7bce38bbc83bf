"""Kernel calls in another order: what a call holds then, what stays where it is, and the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.timeline import Timeline
from symalloc.planner.memory_plan import PlanOptions
from symalloc.relax.extract import extract
from symalloc.relax.files.load import lower_or_refuse, plan_or_refuse
from symalloc.relax.shrink.written_over import order_for_memory
from tests.relax.built import EFFECTS
from tests.relax.shrink.compared import outputs
from tests.scale import tries

X = np.random.default_rng(0).standard_normal((5, 8)).astype("float32")


BUMP = """# script
@T.prim_func(private=True, s_tir=True)
def bump(a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, {0}), "float32")
    for i, j in T.grid(n, {0}):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            A[vi, vj] = A[vi, vj] + T.float32(1)
"""


def network(seed: int) -> tvm.IRModule:
    """A random graph of wide and narrow tensors, some of them written in place; what is left is summed up."""
    random, builder = Random(seed), relax.BlockBuilder()
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    weight = relax.const(np.random.default_rng(seed).standard_normal((8, 64)).astype("float32"))
    made: list[relax.Var] = [x]
    with builder.function("main", [x]):
        with builder.dataflow():
            for _ in range(random.randint(4, 9)):
                one = random.choice(made)
                wide = int(one.ty.shape[1]) == 64
                kind = random.choice(("wide", "narrow", "same", "in place"))
                if kind == "wide" and not wide:
                    made.append(builder.emit(relax.op.matmul(one, weight)))
                elif kind == "narrow" and wide:
                    made.append(builder.emit(relax.op.reshape(relax.op.sum(one, axis=1), (n, 1))))
                    made.append(builder.emit(relax.op.broadcast_to(made.pop(), (n, 8))))
                elif kind == "in place" and one is not x:
                    kernel = builder.add_func(tvm.script.from_source(BUMP.format(64 if wide else 8)), "bump")
                    made.remove(one)
                    made.append(builder.emit(relax.op.call_tir_inplace(kernel, one, 0, one.ty)))
                else:
                    made.append(builder.emit(relax.op.exp(relax.op.negative(one))))
            sums = [builder.emit(relax.op.sum(one, axis=1)) for one in made]
            result = sums[0]
            for one in sums[1:]:
                result = builder.emit(relax.op.add(result, one))
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    return builder.finalize()


def ordered(module: tvm.IRModule) -> tuple[tvm.IRModule, Sequence[str]]:
    analyses = analyse(extract(module, name="module", stage="CallTIRRewrite", handles=True))
    found, names = order_for_memory(module, analyses)
    return found, [*names]


def peak(module: tvm.IRModule, n: int) -> int:
    return Timeline.of(extract(module, name="module"), "main").peak({"n": n}) or 0


def test_the_tensor_that_needs_most_is_made_first_and_let_go() -> None:
    builder, n = relax.BlockBuilder(), tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    weight = relax.const(np.eye(8, 64, dtype="float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            wide = [builder.emit(relax.op.matmul(one, weight)) for one in (x, builder.emit(relax.op.exp(x)))]
            sums = [builder.emit(relax.op.sum(one, axis=1)) for one in wide]
            result = builder.emit_output(relax.op.add(*sums))
        builder.emit_func_output(result)
    given = lower_or_refuse(builder.finalize(), "llvm", "default")
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
