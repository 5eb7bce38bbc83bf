"""Whole modules with plans written into them: callees, fallbacks, kernels, flavours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import tvm
from tvm import relax

from symalloc.analysis.interprocedural import analyse
from symalloc.planner.memory_plan import Guard, Plan
from symalloc.planner.plan_functions import plan_program
from symalloc.program.ir import AllocTensor, Program, View
from symalloc.program.operands import instructions_of
from symalloc.prover.prover import Prover
from symalloc.relax.emit.emit_module import EmissionError, emit_module
from symalloc.relax.extract import extract
from symalloc.relax.passes.plan_pass import plan_lowered
from symalloc.size.condition import le
from symalloc.size.expr import symbol
from tests.relax.built import MODULES, bits, calls, errors, functions, lowered, machine
from tests.relax.built import rows as numbers


def planned(name: str) -> tuple[Program, Mapping[str, Plan]]:
    """The program of a lowered module, and its plans; no calls are inlined."""
    program = extract(lowered(name), name=name, stage="CallTIRRewrite", handles=True)
    return program, plan_program(program, Prover())


def rows(*extents: int) -> Any:
    return tvm.runtime.tensor(numbers(*extents))


def falling_back(name: str) -> tvm.IRModule:
    """A planned module that falls back beyond 4 rows."""
    program, plans = planned(name)
    few = le(symbol("n"), 4)
    plans = {"main": replace(plans["main"], guards=(Guard(condition=few, check=few),))}
    written = emit_module(lowered(name), analyse(program), plans, guards="fallback")
    assert functions(written) == {"main", "main_unplanned"}
    assert errors(written) == []
    return written


def test_a_fallback_runs_unplanned_where_the_guard_fails() -> None:
    ours, theirs = machine(falling_back("Chain")), machine(lowered("Chain"))
    for n, storages in ((4, 2), (5, 3)):
        assert bits(ours, rows(n, 8)) == bits(theirs, rows(n, 8))
        assert calls(ours, rows(n, 8))["vm.builtin.alloc_storage"] == storages


def test_a_fallback_checks_the_casts_that_the_plan_checks() -> None:
    built = machine(falling_back("Joined"))
    for n in (3, 5):  # planned, unplanned
        assert built["main"](rows(n, 8), rows(2, 8), rows(n + 2, 8)).shape == (n + 2, 8)
        with pytest.raises(AssertionError, match=f"a match_cast does not hold: got n = {n}, p = 2, t = 9"):
            built["main"](rows(n, 8), rows(2, 8), rows(9, 8))


@pytest.mark.parametrize("target", ["llvm", "cuda"])
def test_what_a_packed_function_sees_is_brought_to_offset_zero(target: str) -> None:
    planned = plan_lowered(lowered("Sorted"), target=tvm.target.Target(target))
    found = instructions_of(extract(planned.module, name="m").functions["main"].body)
    settled = [i for i in found if isinstance(i, View) and i.kind == "ensure_zero_offset"]
    places = planned.plans["main"].places
    away = {var.name for var, (_, offset) in places.items() if offset.as_constant != 0}
    assert {i.var.name for i in settled} == away & {"alloc1", "alloc2"} != set()


@pytest.mark.parametrize("target", ["opencl", "metal", "vulkan"])
def test_where_data_is_a_handle_what_a_packed_function_sees_starts_a_storage(target: str) -> None:
    """ensure_zero_offset would copy it."""
    planned = plan_lowered(lowered("Sorted"), target=tvm.target.Target(target))
    found = [*instructions_of(extract(planned.module, name="m").functions["main"].body)]
    assert not [i for i in found if isinstance(i, View)]
    tensors = {i.var.name: i for i in found if isinstance(i, AllocTensor)}
    seen = [tensors["alloc1"], tensors["alloc2"]]
    assert [t.offset.as_constant for t in seen] == [0, 0]
    assert any(t.offset.as_constant != 0 for t in tensors.values())  # the others share an arena


def test_what_starts_a_storage_is_not_written_elsewhere() -> None:
    """A plan made for the CPU is no plan for a device whose data is a handle."""
    program, plans = planned("Sorted")
    with pytest.raises(EmissionError, match=r"`alloc[12]` must start its storage on this target"):
        emit_module(lowered("Sorted"), analyse(program), plans, addresses=False)


def test_planning_twice_changes_nothing() -> None:
    once = plan_lowered(lowered("Branches"))
    twice = plan_lowered(once.module)
    assert not twice.plans["main"].arenas
    tvm.ir.assert_structural_equal(once.module, twice.module)


@pytest.mark.parametrize(("one", "other"), [("Chain", "Branches"), ("Branches", "Chain")])
def test_a_plan_of_another_function_is_refused(one: str, other: str) -> None:
    program, plans = planned(one)
    with pytest.raises(EmissionError):
        emit_module(lowered(other), analyse(program), plans)


def test_dataflow_blocks_are_refused() -> None:
    program, plans = planned("Reshapes")
    with pytest.raises(EmissionError, match="run ToNonDataflow first"):
        emit_module(relax.transform.LegalizeOps()(MODULES.Reshapes), analyse(program), plans)
