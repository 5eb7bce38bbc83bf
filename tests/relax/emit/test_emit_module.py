"""Whole modules with plans written into them: callees, fallbacks, kernels, flavours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from symalloc.analysis.interprocedural import analyse
from symalloc.planner.memory_plan import Guard, Plan
from symalloc.planner.plan_functions import plan_program
from symalloc.planner.planner_options import PlanOptions
from symalloc.program.ir import Program
from symalloc.prover.prover import Prover
from symalloc.relax.emit.emit_module import emit_module
from symalloc.relax.extract import extract
from symalloc.relax.files.load import load_one
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.sizes_and_guards import lower_guards
from symalloc.size.condition import le
from symalloc.size.expr import symbol
from tests.relax.built import SCRIPT, calls, errors, functions, machine

DEFAULT = PlanOptions()


def planned(name: str, options: PlanOptions = DEFAULT) -> tuple[tvm.IRModule, Program, Mapping[str, Plan]]:
    """The module of that name, lowered, its program, and the plans; no calls are inlined."""
    module = lower(load_one(SCRIPT, module=name), "llvm")
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
