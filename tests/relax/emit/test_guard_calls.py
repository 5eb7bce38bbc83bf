from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812

from symalloc.planner.planner_options import GuardKind, PlanOptions
from symalloc.relax.passes.pipeline import finishing_pipeline, lower, pipeline
from symalloc.relax.passes.plan_pass import plan_lowered

TARGET = tvm.target.Target({"kind": "llvm", "opt-level": 0})


@I.ir_module
class Product:
    """The matrix between has extents of two empty ones."""

    @R.function
    def main(
        x: R.Tensor(("m", 0), "float32"),  # noqa: N805
        y: R.Tensor((0, "n"), "float32"),
    ) -> R.Tensor((), "float32"):
        z = R.matmul(x, y)
        p = R.exp(z)
        return R.sum(p)


@cache
def machine(guards: GuardKind, *, in_pipeline: bool) -> relax.VirtualMachine:
    options = PlanOptions(guards=guards)
    if in_pipeline:
        built = relax.build(Product, TARGET, relax_pipeline=pipeline(TARGET, options=options))
    else:
        planned = plan_lowered(lower(Product, TARGET), options=options)
        built = relax.build(planned.module, TARGET, relax_pipeline=finishing_pipeline(TARGET))
    return relax.VirtualMachine(built, tvm.cpu())


def arguments(m: int, n: int) -> list[Any]:
    return [tvm.runtime.tensor(np.zeros(shape, "float32")) for shape in ((m, 0), (0, n))]


@pytest.mark.parametrize("in_pipeline", [True, False])
@pytest.mark.parametrize(("m", "n"), [(2**60, 3), (3, 2**60), (2**40, 2**40)])
def test_the_message_shows_which_value_fails(m: int, n: int, in_pipeline: bool) -> None:
    with pytest.raises(AssertionError) as raised:
        machine("assert", in_pipeline=in_pipeline)["main"](*arguments(m, n))
    text = str(raised.value)
    got, need = text.split("got ", 1)[1].split("; need ", 1)
    assert got == f"m = {m}, n = {n}"
    assert not eval(need.splitlines()[0], {"min": min, "max": max}, {"m": m, "n": n}), text


@pytest.mark.parametrize(("m", "n"), [(2**60, 3), (2**40, 2**40)])
def test_a_native_message_is_of_a_check_that_fails(m: int, n: int) -> None:
    with pytest.raises(ValueError, match="count; need ") as raised:
        machine("native", in_pipeline=True)["main"](*arguments(m, n))
    text = str(raised.value).splitlines()[-1].split("count; need ", 1)[1]
    assert not eval(text, {"min": min, "max": max}, {"m": m, "n": n}), text
