"""Scalars that size tensors may be negative, for nothing checks them: the planned module does what the
unplanned one does, down to where both refuse.

No sum here goes over nothing: TVM leaves its result as it found the memory.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import tvm
from tvm import relax

import symalloc
from symalloc.planner.memory_plan import GuardKind, PlanOptions
from symalloc.relax.passes.pipeline import lower, pipeline
from symalloc.relax.passes.plan_pass import plan_lowered


def module(given: str, *body: str) -> tvm.IRModule:
    """A module over a tensor of `n` floats and a size; `t` is what it makes of the size."""
    lines = "\n        ".join(("n, s = T.int64(), T.int64()", "a = R.add(x, x)", *body))
    return tvm.script.from_source(f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), {given}) -> R.Tensor(("n",), "float32"):
        {lines}
        b = R.add(a, t)
        return R.multiply(b, b)
""")


CASES = {
    "Scalar": module(
        's: R.Prim("int64")',
        'z = R.full(R.shape([n, s + 10]), R.const(2.0, "float32"), "float32")',
        "w = R.concat([R.exp(R.multiply(z, z)), R.expand_dims(a, 1)], axis=1)",
        "t = R.sum(w, axis=[1])",
    ),
    # two negative extents give a size that looks right; what is summed up over nothing is times 0
    "Twice": module(
        's: R.Prim("int64")',
        'z = R.full(R.shape([s, s]), R.const(2, "int32"), "int32")',
        'u = R.multiply(R.sum(R.multiply(R.add(z, z), z)), R.const(0, "int32"))',
        't = R.astype(u, "float32")',
    ),
    "Shape": module(
        'given: R.Shape(["s"])',
        'z = R.full(R.shape([s, 3]), R.const(2.0, "float32"), "float32")',
        't = R.sum(R.concat([R.exp(R.multiply(z, z)), R.ones(R.shape([1, 3]), "float32")], axis=0))',
    ),
}


@cache
def machine(name: str, guards: GuardKind | None) -> relax.VirtualMachine:
    """The VM of a module: planned with `guards`, or as TVM builds it."""
    chosen = pipeline("llvm", options=PlanOptions(guards=guards)) if guards else "default"
    return relax.VirtualMachine(relax.build(CASES[name], "llvm", relax_pipeline=chosen), tvm.cpu())


def outcome(name: str, guards: GuardKind | None, n: int, s: int) -> list[float] | None:
    """The values, or None where the VM refuses."""
    given = tvm.runtime.ShapeTuple([s]) if name == "Shape" else s
    x = tvm.runtime.tensor(np.arange(n, dtype="float32"))
    try:
        return machine(name, guards)["main"](x, given).numpy().tolist()
    except (tvm.error.InternalError, AssertionError, ValueError):
        return None


@pytest.mark.parametrize("guards", ["assert", "fallback", "native"])
@pytest.mark.parametrize("name", CASES)
def test_negative_extents_end_as_they_do_without_a_plan(name: str, guards: GuardKind) -> None:
    sizes = [(n, s) for n in (0, 1, 5) for s in (-5000, -64, -11, -10, -3, -1, 0, 7)]
    expected = [outcome(name, None, *size) for size in sizes]
    assert [outcome(name, guards, *size) for size in sizes] == expected
    assert (None in expected) is (name != "Twice")


@pytest.mark.parametrize("value", [-(2**63), -(2**62), 2**62, 2**63 - 1])
def test_scalars_beyond_what_64_bits_count_are_refused(value: int) -> None:
    assert outcome("Scalar", "assert", 3, value) is None
    assert outcome("Shape", "native", 3, value) is None


@pytest.mark.parametrize("name", CASES)
def test_the_plan_takes_in_what_they_size_and_the_linter_agrees(name: str) -> None:
    lowered = lower(CASES[name], "llvm")
    planned = plan_lowered(lowered)
    placed = [p for arena in planned.plans["main"].arenas for p in arena.placements]
    assert any("s" in p.buffer.size.symbols for p in placed)
    assert any("s" in guard.condition.symbols for guard in planned.plans["main"].guards)
    before, after = ({d.rule for d in symalloc.lint(m).diagnostics} for m in (lowered, planned.module))
    assert after <= before
