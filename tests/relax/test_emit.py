"""What is written into a function, seen again by the extractor."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import tvm
from tvm import relax

from symalloc.plan.planner import plan_function
from symalloc.program.model import AllocFresh, AllocStorage, AllocTensor, Assert, Block, If, Instruction, View
from symalloc.prove.prover import Prover
from symalloc.relax.emit import EmissionError, emit_function
from symalloc.relax.extract import extract
from symalloc.relax.pipeline import lower
from symalloc.relax.plan_pass import entry_symbols, plan_lowered
from symalloc.relax.run_load import load_one

SCRIPT = Path(__file__).parent / "modules_to_plan.py"


def lowered(name: str) -> tvm.IRModule:
    return lower(load_one(SCRIPT, module=name), "llvm")


def instructions(block: Block) -> list[Instruction]:
    found: list[Instruction] = []
    for instruction in block.instructions:
        found.append(instruction)
        if isinstance(instruction, If):
            found += instructions(instruction.then) + instructions(instruction.otherwise)
    return found


def test_one_storage_one_guard_and_two_calls_a_tensor() -> None:
    module = plan_lowered(lowered("Branches"))
    body = extract(module.module, name="m").functions["main"].body
    kinds = Counter(type(i) for i in instructions(body))
    planned = sum(len(a.placements) for a in module.plans["main"].arenas)
    assert (kinds[AllocStorage], kinds[AllocTensor], kinds[Assert]) == (1, 1, 1)
    assert kinds[View] == 2 * planned
    assert kinds[AllocFresh] == len(module.plans["main"].unplanned)
    assert [type(i) for i in body.instructions[:3]] == [Assert, AllocStorage, AllocTensor]


def test_offsets_and_sizes_are_those_of_the_plan() -> None:
    module = plan_lowered(lowered("Nested"))
    (arena,) = module.plans["main"].arenas
    found = instructions(extract(module.module, name="m").functions["main"].body)
    (storage,) = (i for i in found if isinstance(i, AllocStorage))
    views = [i for i in found if isinstance(i, View) and i.kind == "view"]
    assert storage.size == arena.size
    assert [v.offset for v in views] == [p.offset for p in arena.placements]
    assert [v.var.name for v in views] == [f"{p.buffer.name}_view" for p in arena.placements]


def test_what_is_emitted_is_well_formed() -> None:
    for name in ("Branches", "Nested", "Tuples", "InPlace", "Reshapes", "Calls", "FromShape", "Static"):
        relax.analysis.well_formed(plan_lowered(lowered(name)).module)


def test_a_function_without_anything_to_plan_is_left_alone() -> None:
    module = lowered("Calls")
    assert plan_lowered(module).module["returns"].same_as(module["returns"])


def test_planning_twice_changes_nothing() -> None:
    once = plan_lowered(lowered("Branches"))
    twice = plan_lowered(once.module)
    assert not twice.plans["main"].arenas
    tvm.ir.assert_structural_equal(once.module, twice.module)


@pytest.mark.parametrize(("planned", "written"), [("Chain", "Branches"), ("Branches", "Chain")])
def test_a_plan_of_another_function_is_refused(planned: str, written: str) -> None:
    program = extract(lowered(planned), name="m")
    seen = program.functions["main"]
    function = lowered(written)["main"]
    variables = entry_symbols(lowered(planned)["main"], seen)
    with pytest.raises(EmissionError):
        emit_function(function, seen, plan_function(seen, program, Prover()), variables)


def test_dataflow_blocks_are_refused() -> None:
    module = load_one(SCRIPT, module="Reshapes")
    program = extract(lowered("Reshapes"), name="m")
    seen = program.functions["main"]
    with pytest.raises(EmissionError, match="run ToNonDataflow first"):
        emit_function(
            module["main"], seen, plan_function(seen, program, Prover()), entry_symbols(module["main"], seen)
        )
