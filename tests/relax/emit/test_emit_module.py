"""Whole modules with plans written into them: callees, fallbacks, kernels, flavours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from symalloc.analysis.interprocedural import analyse
from symalloc.planner.memory_plan import Arena, Buffer, Guard, Placement, Plan, PlanOptions
from symalloc.planner.plan_functions import plan_program
from symalloc.planner.planned_program import first_uses
from symalloc.program.control_flow import control_flow_graph
from symalloc.program.ir import (
    Alias,
    AllocFresh,
    AllocStorage,
    AllocTensor,
    Block,
    CallKernel,
    Function,
    If,
    Instruction,
    Program,
    TextLiteral,
    Var,
    View,
)
from symalloc.program.types import DType, OpaqueType
from symalloc.prover.prover import Prover
from symalloc.relax.emit.emit_module import EmissionError, emit_module
from symalloc.relax.extract import extract
from symalloc.relax.passes.plan_pass import plan_lowered
from symalloc.relax.passes.sizes_and_guards import lower_guards
from symalloc.size.condition import le
from symalloc.size.expr import ZERO, constant, symbol
from tests.relax.built import MODULES, calls, errors, functions, lowered, machine

DEFAULT = PlanOptions()


def planned(name: str, options: PlanOptions = DEFAULT) -> tuple[tvm.IRModule, Program, Mapping[str, Plan]]:
    """The module of that name, lowered, its program, and the plans; no calls are inlined."""
    module = lowered(name)
    program = extract(module, name=name, stage="CallTIRRewrite", handles=True)
    return module, program, plan_program(program, Prover(), options=options)


def emitted(name: str, options: PlanOptions = DEFAULT) -> tvm.IRModule:
    module, program, plans = planned(name, options)
    return emit_module(module, analyse(program), plans, guards=options.guards)


def rows(count: int, *more: int) -> Any:
    values = np.random.default_rng(count).random((count, *more), dtype="float32")
    return tvm.runtime.tensor(values)


# -- callees ------------------------------------------------------------------------------------------------


def test_a_callee_works_in_arenas_of_its_own() -> None:
    for name, called in (("Calls", {"other", "returns", "looks"}), ("Exported", {"helper"})):
        module = emitted(name)
        assert functions(module) == {"main", *called}
        assert errors(module) == []
        ours, theirs = machine(module), machine(planned(name)[0])
        for n in (0, 1, 17, 128):
            assert ours["main"](rows(n)).numpy().tobytes() == theirs["main"](rows(n)).numpy().tobytes()


# -- guards -------------------------------------------------------------------------------------------------


def test_no_guard_is_written_where_none_is_wanted() -> None:
    options = PlanOptions(guards="none")
    module, program, plans = planned("FromEmpty", options)
    assert plans["main"].guards
    assert "assert_op" not in emit_module(module, analyse(program), plans, guards="none").script()


def test_a_fallback_runs_unplanned_where_the_guard_fails() -> None:
    module, program, plans = planned("Chain")
    few = le(symbol("n"), 4)
    plans = {"main": replace(plans["main"], guards=(Guard(condition=few, check=few),))}
    written = emit_module(module, analyse(program), plans, guards="fallback")
    assert functions(written) == {"main", "main_unplanned"}
    assert errors(written) == []
    ours, theirs = machine(written), machine(module)
    for n, storages in ((4, 2), (5, 3)):
        assert ours["main"](rows(n, 8)).numpy().tobytes() == theirs["main"](rows(n, 8)).numpy().tobytes()
        assert calls(ours, rows(n, 8))["vm.builtin.alloc_storage"] == storages


def test_a_fallback_checks_the_casts_that_the_plan_checks() -> None:
    module, program, plans = planned("Joined")
    few = le(symbol("n"), 4)
    plans = {"main": replace(plans["main"], guards=(Guard(condition=few, check=few),))}
    written = emit_module(module, analyse(program), plans, guards="fallback")
    assert errors(written) == []
    built = machine(written)
    for n in (3, 5):  # planned, unplanned
        assert built["main"](rows(n, 8), rows(2, 8), rows(n + 2, 8)).shape == (n + 2, 8)
        with pytest.raises(AssertionError, match=f"a match_cast does not hold: got n = {n}, p = 2, t = 9"):
            built["main"](rows(n, 8), rows(2, 8), rows(9, 8))


def test_a_native_guard_raises_without_python() -> None:
    module = lower_guards(emitted("FromEmpty", PlanOptions(guards="native")), None)
    assert "relax.run.assert_op" not in module.script()
    built = machine(module)
    assert built["main"](rows(3, 0)).numpy() == 2 * 64 * 3
    with pytest.raises(
        ValueError, match=r"main: these shapes need more bytes than 64 bits count; need n <= "
    ):
        built["main"](tvm.runtime.tensor(np.zeros((2**56, 0), "float32")))


def test_a_native_guard_survives_dead_code_elimination() -> None:
    guarded = lower_guards(emitted("FromEmpty", PlanOptions(guards="native")), None)
    module = relax.transform.DeadCodeElimination()(guarded)
    with pytest.raises(ValueError, match="need n <= "):
        machine(module)["main"](tvm.runtime.tensor(np.zeros((2**56, 0), "float32")))


# -- flavours -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Branches", "Nested", "Chain", "Tuples", "InPlace"])
def test_whole_storages_need_no_offsets(name: str) -> None:
    module, program, plans = planned(name, PlanOptions(flavour="storages"))
    written = emit_module(module, analyse(program), plans)
    assert len(plans["main"].arenas) > 1
    kernels = extract(written, name="m").kernels
    assert kernels == extract(module, name="m").kernels
    assert "ensure_zero_offset" not in written.script()
    assert errors(written) == []


def instructions(block: Block) -> list[Instruction]:
    found: list[Instruction] = []
    for instruction in block.instructions:
        found.append(instruction)
        if isinstance(instruction, If):
            found += instructions(instruction.then) + instructions(instruction.otherwise)
    return found


def test_one_storage_an_arena_one_guard_and_one_call_a_tensor() -> None:
    module = plan_lowered(lowered("Branches"))
    body = extract(module.module, name="m").functions["main"].body
    kinds = Counter(type(i) for i in instructions(body))
    arenas = module.plans["main"].arenas
    planned = sum(len(a.placements) for a in arenas)
    assert (kinds[AllocStorage], kinds[AllocTensor]) == (len(arenas), planned)
    assert [i.kernel for i in instructions(body) if isinstance(i, CallKernel)].count("main_check") == 1
    assert kinds[View] == 0
    assert kinds[AllocFresh] == len(module.plans["main"].unplanned)
    made = [
        type(i) for i in body.instructions if type(i) is not Alias
    ]  # offsets of several tensors are bound first
    assert made[:3] == [CallKernel, AllocStorage, AllocTensor]


def test_offsets_and_sizes_are_those_of_the_plan() -> None:
    module = plan_lowered(lowered("Nested"))
    arenas = module.plans["main"].arenas
    found = list(instructions(extract(module.module, name="m").functions["main"].body))
    storages = [i for i in found if isinstance(i, AllocStorage)]
    tensors = [i for i in found if isinstance(i, AllocTensor)]
    assert sorted(str(s.size) for s in storages) == sorted(str(a.size) for a in arenas)
    placed = sorted((p.buffer.name, str(p.offset)) for a in arenas for p in a.placements)
    assert sorted((t.var.name, str(t.offset)) for t in tensors) == placed


@pytest.mark.parametrize("target", ["llvm", "cuda"])
def test_what_a_packed_function_sees_is_brought_to_offset_zero(target: str) -> None:
    planned = plan_lowered(lowered("Sorted"), target=tvm.target.Target(target))
    found = instructions(extract(planned.module, name="m").functions["main"].body)
    settled = [i for i in found if isinstance(i, View) and i.kind == "ensure_zero_offset"]
    places = planned.plans["main"].places
    away = {var.name for var, (_, offset) in places.items() if offset.as_constant != 0}
    assert {i.var.name for i in settled} == away & {"alloc1", "alloc2"} != set()


@pytest.mark.parametrize("target", ["opencl", "metal", "vulkan"])
def test_where_data_is_a_handle_what_a_packed_function_sees_starts_a_storage(target: str) -> None:
    """ensure_zero_offset would copy it."""
    planned = plan_lowered(lowered("Sorted"), target=tvm.target.Target(target))
    found = instructions(extract(planned.module, name="m").functions["main"].body)
    assert not [i for i in found if isinstance(i, View)]
    tensors = {i.var.name: i for i in found if isinstance(i, AllocTensor)}
    seen = [tensors["alloc1"], tensors["alloc2"]]
    assert [t.offset.as_constant for t in seen] == [0, 0]
    assert any(t.offset.as_constant != 0 for t in tensors.values())  # the others share an arena


def test_what_starts_a_storage_is_not_written_elsewhere() -> None:
    """A plan made for the CPU is no plan for a device whose data is a handle."""
    module = lowered("Sorted")
    program = extract(module, name="m", handles=True)
    plans = plan_program(program, Prover())
    with pytest.raises(EmissionError, match=r"`alloc[12]` must start its storage on this target"):
        emit_module(module, analyse(program), plans, addresses=False)


def test_what_is_emitted_is_well_formed() -> None:
    for name in ("Branches", "Nested", "Tuples", "InPlace", "Reshapes", "Calls", "FromShape", "Static"):
        relax.analysis.well_formed(plan_lowered(lowered(name)).module)


def test_a_function_without_anything_to_plan_is_left_alone() -> None:
    module = lowered("Calls")
    program = extract(module, name="m", handles=True)
    assert emit_module(module, analyse(program), plan_program(program, Prover()))["returns"].same_as(
        module["returns"]
    )


def test_planning_twice_changes_nothing() -> None:
    once = plan_lowered(lowered("Branches"))
    twice = plan_lowered(once.module)
    assert not twice.plans["main"].arenas
    tvm.ir.assert_structural_equal(once.module, twice.module)


@pytest.mark.parametrize(("planned", "written"), [("Chain", "Branches"), ("Branches", "Chain")])
def test_a_plan_of_another_function_is_refused(planned: str, written: str) -> None:
    program = extract(lowered(planned), name="m", handles=True)
    with pytest.raises(EmissionError):
        emit_module(lowered(written), analyse(program), plan_program(program, Prover()))


def test_dataflow_blocks_are_refused() -> None:
    program = extract(lowered("Reshapes"), name="m", handles=True)
    with pytest.raises(EmissionError, match="run ToNonDataflow first"):
        emit_module(
            relax.transform.LegalizeOps()(MODULES.Reshapes),
            analyse(program),
            plan_program(program, Prover()),
        )


FLOAT, VOID = DType("float32", 32), OpaqueType()


def alloc(name: str) -> AllocFresh:
    return AllocFresh(var=Var(name, VOID), shape=(constant(16),), dtype=FLOAT, device=0)


def arena(*members: AllocFresh, after: Var | None = None) -> Arena:
    size = constant(64)
    placed = (
        Placement(
            buffer=Buffer(id=i, name=m.var.name, size=size, nbytes=size, live=((0, 1),), var=m.var),
            offset=ZERO,
        )
        for i, m in enumerate(members)
    )
    return Arena(device=0, scope="global", size=size, placements=tuple(placed), defined_by=after)


def test_an_arena_is_reserved_in_the_innermost_block_in_front_of_its_first_tensor() -> None:
    a, b, inside, deep, late = (alloc(name) for name in ("a", "b", "inside", "deep", "late"))
    inner = If(var=Var("i", VOID), condition=None, test=TextLiteral("d"), then=block(deep), otherwise=block())
    outer = If(
        var=Var("o", VOID),
        condition=None,
        test=TextLiteral("c"),
        then=block(),
        otherwise=block(inside, inner),
    )
    plan = Plan(
        function="f",
        arenas=(arena(deep), arena(b, a), arena(inside, late), arena(late, after=a.var), arena()),
    )
    function = Function(name="f", params=(), body=block(a, b, outer, late), result_type=VOID, symbols={})
    assert first_uses(plan, control_flow_graph(function)) == {
        deep.var: [0],
        a.var: [1],
        outer.var: [2],
        late.var: [3],
    }


def block(*instructions: AllocFresh | If) -> Block:
    return Block(instructions=instructions, result=TextLiteral("nothing"))
