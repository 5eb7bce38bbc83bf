"""Kernel calls taken out of planned models: what read their results now reads what nothing has written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from symalloc.linter.linter import check
from symalloc.program.ir import CallKernel, Program
from symalloc.prover.prover import Prover
from symalloc.relax.extract import extract
from symalloc.rulebook.book import load_rules
from tests.mutation.vm.subjects import planned_by_tvm

MODELS = ("mlp_dynamic_batch", "mlp_residual", "norms", "cross_attention")


def _without_a_call(program: Program) -> Iterator[tuple[str, Program]]:
    """The program without one of its kernel calls, once for each."""
    for name, function in program.functions.items():
        instructions = function.body.instructions
        for index, left_out in enumerate(instructions):
            if isinstance(left_out, CallKernel):
                rest = (*instructions[:index], *instructions[index + 1 :])
                changed = replace(function, body=replace(function.body, instructions=rest))
                yield (
                    f"{name}: {index} {left_out.kernel}",
                    replace(program, functions={**program.functions, name: changed}),
                )


@pytest.mark.parametrize("model", MODELS)
def test_each_call_is_missed(model: str) -> None:
    program, prover, rules = extract(planned_by_tvm(model), name=model), Prover(), load_rules()
    assert not [d for d in check(program, rules, prover).diagnostics if d.rule == "SYM208"]
    changed = list(_without_a_call(program))
    assert changed
    for what, broken in changed:
        found = [d for d in check(broken, rules, prover).diagnostics if d.rule == "SYM208"]
        assert {str(d.severity) for d in found} == {"error"}, (what, [d.message for d in found])
