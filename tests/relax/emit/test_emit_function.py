"""What is written into a function, seen again by the extractor."""

from __future__ import annotations

from collections import Counter

import pytest
import tvm
from tvm import relax

from symalloc.analysis.interprocedural import analyse
from symalloc.planner.plan_functions import plan_program
from symalloc.program.ir import (
    Alias,
    AllocFresh,
    AllocStorage,
    AllocTensor,
    Block,
    CallKernel,
    If,
    Instruction,
    View,
)
from symalloc.prover.prover import Prover
from symalloc.relax.emit.emit_module import EmissionError, emit_module
from symalloc.relax.extract import extract
from symalloc.relax.files.load import load_one
from symalloc.relax.passes.plan_pass import plan_lowered
from tests.relax.built import SCRIPT, lowered


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
    placed = planned.plans["main"].placements.values()
    away = {p.buffer.name for _, p in placed if p.offset.as_constant != 0}
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
            relax.transform.LegalizeOps()(load_one(SCRIPT, module="Reshapes")),
            analyse(program),
            plan_program(program, Prover()),
        )
