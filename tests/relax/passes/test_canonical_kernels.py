"""Kernels are called by what they do and by where they are called first, whatever TVM called them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar

import symalloc
from symalloc.planner import memory_plan
from symalloc.planner.memory_plan import PlanBudget
from symalloc.relax.files.plan_file import plan_outcomes
from symalloc.relax.ir_types import BindingNode, bindings_in, bound, elements, with_arguments, with_parameters
from symalloc.relax.passes.canonical_kernels import call_instead, canonical_kernels
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import PlannedModule, plan_lowered
from symalloc.relax.passes.stages import Lowered, WantedStages
from symalloc.relax.passes.stages import lower as lower_stages
from symalloc.relax.rewrite import ModuleDraft, map_bindings, without
from tests.models.imported import load_imported
from tests.models.planned import within_limit
from tests.models.zoo import MODELS
from tests.relax.built import bits, graph, machine

_SOURCE = """
@I.ir_module
class Several:
    @T.prim_func(private=True)
    def mine2(x: T.handle, y: T.handle):
        n = T.int64()
        X = T.match_buffer(x, (n, 4))
        Y = T.match_buffer(y, (n, 4))
        for i, j in T.grid(n, 4):
            Y[i, j] = X[i, j] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), z: R.Tensor(("n", "m"), "float32"), c: R.Tensor((), "bool")):
        n, m = T.int64(), T.int64()
        b = R.call_tir(Several.mine2, (R.add(x, x),), out_ty=R.Tensor((n, 4), "float32"))
        d = R.sum(z, axis=1, keepdims=True)
        if c:
            e = R.add(R.concat((b, z), axis=1), R.const(1, "float32"))
            r = R.add(R.sum(e, axis=1, keepdims=True), d)
        else:
            r = R.add(d, d)
        return r
"""


def with_scalars(
    kernel: tirx.PrimFunc, arranged: Callable[[list[int]], Sequence[int]]
) -> tuple[tirx.PrimFunc, list[int]]:
    """A kernel with its scalars in another order, and the order of all its parameters."""
    params = elements(kernel.params)
    scalars = [i for i, p in enumerate(params) if type(p.ty) is tvm.ir.PrimType]
    moved = dict(zip(scalars, arranged(scalars), strict=True))
    order = [moved.get(i, i) for i in range(len(params))]
    return with_parameters(kernel, [params[i] for i in order], kernel.body), order


def renumbered(module: tvm.IRModule, kept: str, chance: Random) -> tvm.IRModule:
    """`module` with other numbers behind the names of its kernels, and other orders of their scalars."""
    kernels = (v.name_hint for v, f in module.functions_items() if isinstance(f, tirx.PrimFunc))
    made = [name for name in kernels if name != kept]
    chance.shuffle(made)
    draft, instead = ModuleDraft(without(module, made)), {}
    for number, name in enumerate(made):
        other, order = with_scalars(module[name], lambda scalars: chance.sample(scalars, len(scalars)))
        instead[name] = draft.add(f"{name.rstrip('0123456789')}{number + 3}", other), order
    return call_instead(draft.finished(), instead)


def kernels_called(module: tvm.IRModule) -> list[str]:
    values = (binding.value for binding in bindings_in(module["main"].body))
    return [v.op.name_hint for v in values if type(v) is Call and type(v.op) is GlobalVar]


def test_names_and_orders_do_not_depend_on_what_they_were() -> None:
    lowered = lower(tvm.script.from_source(_SOURCE), "llvm")
    assert canonical_kernels(lowered, ["mine2"]).script() == lowered.script()
    chance = Random(0)
    for _ in range(4):
        shaken = renumbered(lowered, "mine2", chance)
        assert kernels_called(shaken) != kernels_called(lowered)
        again = canonical_kernels(shaken, ["main", "mine2"])
        assert again.script() == lowered.script()
        assert canonical_kernels(again, ["main", "mine2"]).script() == again.script()
    assert kernels_called(lowered)[:2] == ["add", "mine2"], "a name of the author stays"
    given = np.ones((3, 4), "float32"), np.ones((3, 5), "float32"), np.array(True)
    assert bits(machine(lowered), *given) == bits(machine(again), *given)


def test_kernels_that_differ_in_the_order_of_scalars_are_one() -> None:
    """TVM makes one or two of the reshapes of keys and of values, as the orders are alike or not."""
    lowered = lower(MODELS["llama_decode_masked"].build(), "llvm")
    kernel, order = with_scalars(lowered["reshape1"], lambda scalars: scalars[::-1])
    draft, calls = ModuleDraft(lowered), list[Call]()
    other = draft.add("reshape7", kernel)

    def second(_: str, binding: BindingNode) -> list[relax.Binding] | None:
        value = binding.value
        if type(value) is Call and getattr(value.op, "name_hint", "") == "reshape1":
            calls.append(value)
            if len(calls) == 2:
                arguments = [elements(value.args)[i] for i in order]
                return [bound(binding.var, with_arguments(value, arguments, other))]
        return None

    twins = map_bindings(draft.finished(), second)
    assert order != sorted(order) and len(calls) == 2 and "reshape7" in twins.script()
    given = [v.name_hint for v, f in lowered.functions_items() if isinstance(f, relax.Function)]
    assert canonical_kernels(twins, given).script() == lowered.script()


@pytest.mark.parametrize("name", ["torch_image_floors", "torch_image_any_size"])
def test_a_model_is_lowered_alike_each_time(name: str) -> None:
    """TVM calls a kernel of the first `fused_conv2d3_add1` or `fused_conv2d3_add2`; it orders scalars of the
    second in two ways.
    """
    texts = {lower(load_imported(name), "llvm", pipeline="target").script(show_meta=False) for _ in range(4)}
    assert len(texts) == 1


def test_stages_that_lint_reads_are_alike_each_time() -> None:
    def stages() -> list[tuple[str, str]]:
        kept = list[Lowered]()
        wanted = WantedStages(names=("CallTIRRewrite", "StaticPlanBlockMemory", "KillAfterLastUse"))
        lower_stages(
            load_imported("torch_image_floors"), "llvm", wanted=wanted, keep=kept.append, pipeline="target"
        )
        return [(one.stage, one.mod.script(show_meta=False)) for one in kept]

    first = stages()
    assert [stage for stage, _ in first] == ["CallTIRRewrite", "StaticPlanBlockMemory", "KillAfterLastUse"]
    assert all(stages() == first for _ in range(3))


def test_a_pipeline_that_is_taken_over_gives_one_module() -> None:
    """Kernels that the module came with keep their names, in each module by itself."""
    target, calls = tvm.target.Target("llvm"), set[tuple[str, ...]]()
    with target, symalloc.replace_tvm_planner():
        for _ in range(4):
            behind = relax.get_default_pipeline(target)(load_imported("torch_image_floors"))
            calls.add(tuple(v.name_hint for v in behind.get_global_vars() if "fused" in v.name_hint))
            kept = relax.get_pipeline("default")(tvm.script.from_source(_SOURCE))
            assert "mine2" in {v.name_hint for v in kept.get_global_vars()}
    assert len(calls) == 1


MOST = 1.05  # of an unplanned call, where a budget ends the search
OVER = 1.3  # times its allowance that a budget may be spent: what is begun is ended


def dense(count: int, live: int) -> tvm.IRModule:
    """`count` tensors of as many sizes in two symbols, `live` of them at once, each summed up in the end."""

    def write(emit: Callable[[relax.Expr], relax.Var], *inputs: relax.Var) -> relax.Expr:
        n, m = (one.ty.shape[0] for one in inputs)
        total = emit(relax.op.add(*(emit(relax.op.sum(x)) for x in inputs)))
        waiting: list[relax.Var] = []
        for index in range(count):
            shape = relax.ShapeExpr([n * (7 * index % count + 1) + m * (5 * (count - index) % count + 1)])
            waiting.append(emit(relax.op.full(shape, total, "float32")))
            oldest = [waiting.pop(index * index % live)] if len(waiting) > live else ()
            for one in (*oldest, *(waiting if index == count - 1 else ())):
                total = emit(relax.op.add(total, emit(relax.op.sum(one))))
        return total

    return graph(write, x=("n",), y=("m",))


@pytest.mark.parametrize("count", [12, 36])
def test_what_is_spent_grows_with_the_tensors(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = lower(dense(count, count // 3), "llvm")
    given, of = list[PlanBudget](), PlanBudget.of

    def noted(*args: Any) -> PlanBudget:
        given.append(of(*args))
        return given[-1]

    monkeypatch.setattr(PlanBudget, "of", noted)
    monkeypatch.setattr(memory_plan, "BASE", 0)  # nothing is allowed but what tensors bring
    found: PlannedModule = plan_lowered(module)
    (budget,) = given
    plan = found.plans["main"]
    assert budget.allowed == memory_plan.EACH * 3 * count + memory_plan.EACH * 3
    assert budget.spent <= OVER * budget.allowed
    assert "storages" not in {fallback.kind for fallback in plan.fallbacks}
    outcome = plan_outcomes(found)["main"]
    for extents in ({"n": 8, "m": 8}, {"n": 900, "m": 40}, {"n": 1000, "m": 100_000}):
        planned, unplanned = outcome.planned.peak(extents), outcome.unplanned.peak(extents)
        assert planned is not None and unplanned is not None
        assert planned <= max(MOST * unplanned, within_limit(unplanned))
