"""Modules planned by PlanMemory, run, and compared bit for bit with the same module unplanned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import symalloc
from symalloc.planner import plan_functions
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.memory_plan import Arena, Buffer, Placement
from symalloc.planner.memory_report.runs import RunResult
from symalloc.relax.extract import extract
from symalloc.relax.files.load import load_one
from symalloc.relax.passes.pipeline import lower, pipeline
from symalloc.relax.passes.plan_pass import PlannedModule, plan_lowered
from symalloc.relax.run.runner import Runner
from symalloc.size.choice import maximum
from symalloc.size.expr import ZERO
from tests.pool.processes import died, survives
from tests.relax.built import MODULES, bits, errors, graph, machine

pytestmark = pytest.mark.slow

SIZES = tuple({"n": n} for n in (0, 1, 3, 128))


@cache
def planned(module: tvm.IRModule) -> PlannedModule:
    return plan_lowered(lower(module, "llvm"))


def same(
    module: tvm.IRModule,
    bindings: Iterable[Mapping[str, int]],
    *,
    seeds: Iterable[int] = (0,),
    **options: Any,
) -> list[RunResult]:
    """Runs `module` planned and unplanned; fails where one bit differs."""
    runner = Runner(module, **options)
    seeds = tuple(seeds)
    results = [runner.run(b, check=True, seed=seed) for b in bindings for seed in seeds]
    assert [r.difference for r in results] == [None] * len(results)
    return results


def reasons(module: tvm.IRModule, function: str = "main") -> dict[str, str]:
    return {u.name: u.reason for u in planned(module).plans[function].unplanned}


def built(module: tvm.IRModule) -> relax.VirtualMachine:
    return relax.VirtualMachine(relax.build(module, "llvm", relax_pipeline=pipeline()), tvm.cpu())


def test_a_slice_up_to_the_end_has_a_size() -> None:
    """Its end, 2**63 - 1, counted as a number of rows: the guard let no shape pass."""

    def write(emit: Any, x: relax.Var) -> relax.Expr:
        every_other = relax.op.strided_slice(emit(relax.op.exp(x)), [0], [0], [2**63 - 1], [2])
        return relax.op.sin(emit(relax.op.exp(emit(every_other))))

    for result in same(graph(write, x=("n", 8)), SIZES):
        assert result.arena_bytes <= result.floor_bytes


@pytest.mark.parametrize(
    ("name", "seeds", "placed"),
    [  # the seeds take all branches
        *(("Branches", 4, 0), ("Nested", 8, 0), ("Scalars", 1, 2), ("Tuples", 1, 0)),
        *(("InPlace", 1, 3), ("Reshapes", 1, 0)),
    ],
)
def test_what_is_planned_runs_right_and_lints_clean(name: str, seeds: int, placed: int) -> None:
    module = getattr(MODULES, name)
    found = planned(module)
    assert sum(len(arena.placements) for arena in found.plans["main"].arenas) >= placed
    assert errors(found.module) == []
    same(module, SIZES, seeds=range(seeds))


def test_where_the_default_pipeline_crashes_ours_runs() -> None:
    """apache/tvm#20191."""

    def run(**how: Any) -> None:
        made = relax.VirtualMachine(relax.build(MODULES.Branches, "llvm", **how), tvm.cpu())
        bits(made, np.array(False), np.ones((3, 8), "float32"))

    assert died(run)[0] < 0, "TVM's default pipeline runs this module now: update the README"
    survives(lambda: run(relax_pipeline=symalloc.pipeline("llvm")))


def test_tuples_are_followed_field_by_field() -> None:
    assert reasons(MODULES.Tuples).keys() <= {"alloc3", "alloc4"}, "results, which may lend their memory"


@pytest.fixture
def identity() -> None:
    tvm.register_global_func("symalloc.tests.identity", lambda x: x, override=True)
    tvm.register_global_func(
        "symalloc.tests.head", lambda x: tvm.runtime.tensor(x.numpy()[: x.shape[0] // 2]), override=True
    )


def test_an_argument_of_an_unknown_packed_function_stays_unplanned(identity: None) -> None:
    """StaticPlanBlockMemory reuses the storage of `a` while `b`, the same tensor, is still to be read."""

    assert "symalloc.tests.identity" in reasons(MODULES.Identity)["alloc"]
    same(MODULES.Identity, SIZES)
    x = np.ones((2, 8), "float32")
    assert bits(built(MODULES.Identity), x) == [(x + 1 + (2 * x) ** 2).tobytes()]


def test_what_is_sized_by_a_match_cast_has_an_arena_behind_it(identity: None) -> None:
    found = planned(MODULES.Cast)
    first, second = found.plans["main"].arenas
    assert (first.defined_by, second.defined_by.name if second.defined_by else None) == (None, "h")
    assert "symalloc.tests.head" in reasons(MODULES.Cast)["alloc1"]
    assert errors(found.module) == []
    same(MODULES.Cast, SIZES)


def test_a_cast_to_a_known_symbol_is_checked_although_tvm_drops_it() -> None:
    """KillAfterLastUse writes n + p for t and forgets that they were to be equal."""
    module = MODULES.Joined
    assert errors(planned(module).module) == []
    same(module, [{"n": n, "p": p, "t": n + p} for n, p in ((1, 1), (3, 40))])
    vm = built(module)
    with pytest.raises(AssertionError, match=r"main: a match_cast does not hold: got n = 2, p = 3, t = 4"):
        bits(vm, *(np.zeros((rows, 8), "float32") for rows in (2, 3, 4)))


def test_each_function_has_its_arena() -> None:
    found = planned(MODULES.Calls)
    assert all(found.plans[name].arenas for name in ("main", "other"))
    assert errors(found.module) == []
    same(MODULES.Calls, SIZES)
    same(MODULES.Calls, [{"m": m, "k": 5} for m in (0, 1, 9)], function="other")


def test_two_variables_of_one_name_are_told_apart() -> None:
    builder = relax.BlockBuilder()
    n, other = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("n", "int64")
    x, y = (relax.Var(name, relax.TensorType((e, 4), "float32")) for name, e in (("x", n), ("y", other)))
    with builder.function("main", [x, y]):
        a, b = builder.emit(relax.op.exp(x)), builder.emit(relax.op.exp(y))
        sums = [builder.emit(relax.op.add(*pair)) for pair in ((a, x), (b, y))]
        builder.emit_func_output(relax.Tuple(sums))
    module = builder.finalize()
    variables = extract(module, name="m", handles=True).functions["main"].variables
    assert [variables[name].same_as(var) for name, var in (("n", n), ("n_1", other))] == [True, True]
    for result in same(module, [{"n": 1, "n_1": 50}, {"n": 50, "n_1": 1}]):
        assert result.arena_bytes == 64 + 832, "16 B and 800 B, each rounded up"


def test_sizes_that_wrap_are_stopped_at_entry() -> None:
    """2**56 rows of 256 B are 2**64 B, which wrap to an arena of no bytes at all."""
    module = planned(MODULES.FromEmpty)
    (guard,) = module.plans["main"].guards
    limit = 2**63 // max(a.size.evaluate({"n": 1}) for a in module.plans["main"].arenas) - 1
    assert guard.condition.evaluate({"n": limit}) and not guard.condition.evaluate({"n": limit + 1})
    vm = built(MODULES.FromEmpty)
    assert bits(vm, np.zeros((3, 0), "float32")) == [np.float32(2 * 64 * 3).tobytes()]
    with pytest.raises(AssertionError, match=r"got n = 72057594037927936"):
        bits(vm, np.zeros((2**56, 0), "float32"))


def test_a_refusal_passes_through_tvm_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stacking that puts everything at the start must be refused, through TVM's pass runner too."""

    def flat(found: Sequence[Buffer], *_: object, **__: object) -> Arena:
        return Arena.of(maximum(*(b.size for b in found)), (Placement(b, ZERO) for b in found))

    monkeypatch.setattr(plan_functions, "assemble", flat)
    with pytest.raises(PlanRefusedError, match=r"plan for `main` is refused: `alloc\d*`, `alloc\d*`: they"):
        relax.build(MODULES.Chain, "llvm", relax_pipeline=pipeline())
    relax.build(MODULES.FromShape, "llvm")  # TVM is usable afterwards


SIZED_IN_A_BRANCH = """# script
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(("n",), "float32"):
        n, k = T.int64(), T.int64()
        a = R.exp(x)
        if c:
            places = R.match_cast(R.nonzero(x), R.Tensor((1, k), "int64"))
            y = R.add(a, R.max(R.cos(R.sin(R.astype(places, "float32")))))
        else:
            y = R.sin(a)
        return R.multiply(y, a)
"""


def test_what_is_sized_within_a_branch_lies_in_an_arena_there() -> None:
    module = load_one(Path("branch.py"), data=SIZED_IN_A_BRANCH.encode())
    lowered = lower(module, "llvm")
    planned = symalloc.plan(module)
    waiting = [a.defined_by.name for a in planned.plans["main"].arenas if a.defined_by is not None]
    assert set(waiting) == {"places"}
    theirs, ours = machine(lowered), relax.VirtualMachine(relax.build(planned.module, "llvm"), tvm.cpu())
    for taken, extent in ((True, 1), (True, 700), (False, 1), (False, 700)):
        arguments = np.linspace(0.1, 1, extent, dtype="float32"), np.array(taken)
        assert bits(theirs, *arguments) == bits(ours, *arguments)


INEXACT = """# script
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor((), "float32"):
        n = T.int64()
        a = R.zeros(R.shape([T.Cast("int64", T.Cast("float32", n) * T.float32(2.5))]), "float32")
        b = R.exp(x)
        return R.add(R.sum(a), R.sum(b))
"""


def test_what_cannot_be_sized_is_named_and_costs_no_other_its_place() -> None:
    (plan,) = symalloc.plan(load_one(Path("inexact.py"), data=INEXACT.encode())).plans.values()
    (culprit,) = (u for u in plan.unplanned if u.nbytes is None)
    assert culprit.reason.startswith("its shape is not known: `T.Cast(")
    assert culprit.reason.endswith("has no exact form (a float that may be no integer)")
    assert len(plan.places) == 3
