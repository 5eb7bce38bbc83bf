"""What moves into the memory of results, and when nothing needs to be tried."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from benchmarks.zoo_models import chain
from symalloc.planner import plan_functions
from symalloc.planner.buffers.result_memory import _Relief
from symalloc.planner.grid import Values
from symalloc.planner.planner_options import BoundsUse, PlanOptions
from symalloc.program.ir import Instruction, Operand, Origin, Var
from symalloc.program.types import TensorType
from symalloc.prover.prover import Prover
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered
from symalloc.size.expr import Expr, constant, symbol
from tests.planner.buffers.test_candidates import FLOAT, N, X, alloc, function, kernel, split
from tests.program.build import program_of

M = symbol("m")
Y = Var("y", TensorType(shape=(M,), dtype=FLOAT))
WIDTHS: tuple[Expr, ...] = (N * constant(16), N * constant(48), N * N * constant(16), constant(4096))


def program(random: Random) -> tuple[list[Instruction], Operand]:
    """A line of kernels, each of which reads the last tensor and often an earlier one."""
    body: list[Instruction] = []
    made: list[Operand] = [X]
    for number in range(random.randint(3, 9)):
        one = alloc(f"t{number}", random.choice(WIDTHS))
        body += [one, kernel(made[-1], random.choice(made[-3:]), one.var)]
        made.append(one.var)
    return body, made[-1]


def test_hopeless_is_only_what_no_moves_could_save(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, found = _Relief.hopeless, {True: 0, False: 0}

    def recorded(self: _Relief, room: Values) -> bool:
        answer = plain(self, room)
        found[answer] += 1
        return answer

    def answers(seed: int) -> list[tuple[str, int]]:
        body, result = program(Random(seed))
        return [(name, buffer.arena) for name, buffer in split(*body, result=result)[0].items()]

    for seed in range(60):
        monkeypatch.setattr(_Relief, "hopeless", recorded)
        quick = answers(seed)
        monkeypatch.setattr(_Relief, "hopeless", lambda *_: False)
        assert quick == answers(seed), seed
    assert min(found.values()) > 0, "both happen"


@pytest.mark.parametrize(
    ("size", "bounds", "shared"),
    [
        (constant(16), "ignore", set()),
        (4 * M, "ignore", set()),
        (16 * M, "ignore", set()),
        (constant(16), "enforce", {"small"}),
    ],
)
def test_nothing_is_put_into_a_result_that_holds_it_within_declared_bounds_only(
    size: Expr, bounds: BoundsUse, shared: set[str]
) -> None:
    """No arena is chosen that has to be given up once it is seen to outgrow the result."""
    small, big, last = (
        alloc(name, wide) for name, wide in (("small", size), ("big", N * M), ("last", N * M))
    )
    steps = kernel(X, small.var), kernel(small.var, big.var), kernel(big.var, last.var)
    bare = function(small, steps[0], big, steps[1], last, steps[2], result=last.var, params=(X, Y))
    declared = replace(bare, symbols=dict.fromkeys("nm", Origin.DIMENSION), declared_lower={"n": 16, "m": 16})
    with patch.object(plan_functions, "find_buffers", wraps=plan_functions.find_buffers) as chosen:
        plans = plan_functions.plan_program(
            program_of(declared), Prover(), options=PlanOptions(bounds=bounds)
        )
    assert chosen.call_count == 1
    lent = [arena for arena in plans["main"].arenas if arena.result is not None]
    assert {p.buffer.name for arena in lent for p in arena.placements} - {"last"} == shared


def test_gains_are_the_same_by_size_and_by_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    gaining, compared = _Relief.gains, []

    def both(self: _Relief, members: Any, surplus: Any) -> Any:
        found = gaining(self, members, surplus)
        assert len(self.memory.kinds_of(members)[0]) * len(surplus) < self.many(members)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_Relief, "many", lambda *_: 0)
            assert np.array_equal(found, gaining(self, members, surplus))
        compared.append(len(members))
        return found

    monkeypatch.setattr(_Relief, "gains", both)
    plan_lowered(lower(chain(200), "llvm"))
    assert max(compared) > 100
