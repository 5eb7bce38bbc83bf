"""Functions of equal structure get the plans that they would get alone, from one search."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from symalloc.planner import plan_functions
from symalloc.planner.memory_plan import Plan
from symalloc.planner.plan_functions import plan_program
from symalloc.planner.planner_options import PlanOptions
from symalloc.program.ir import AllocFresh, Function, Instruction, MakeTuple, Origin, Var
from symalloc.prover.prover import Prover
from symalloc.size.expr import constant
from tests.planner.buffers.test_candidates import VOID, K, N, X, alloc, function, kernel
from tests.program.build import program_of
from tests.scale import tries

SIZES = (N, N * constant(16), N * N, constant(1000), N * constant(24))


def chain(name: str, seed: int, sizes: int = len(SIZES)) -> Function:
    """Tensors that are each made of others; equal seeds give equal structures, whatever the name."""
    random = Random(seed)
    made: list[Var] = []
    body: list[Instruction] = []
    for number in range(random.randint(3, 9)):
        one = alloc(f"{name}_{number}", random.choice(SIZES[:sizes]))
        body += [one, kernel(X, *random.sample(made[-4:], min(len(made), 2)), one.var)]
        made.append(one.var)
    body += [alloc(f"{name}_unsized", K), alloc(f"{name}_unused")]
    result = MakeTuple(var=Var("both", VOID), fields=(made[-1], made[len(made) // 2]))
    return replace(function(*body, result, result=result.var, name=name), symbols={"n": Origin.DIMENSION})


def shown(plan: Plan) -> str:
    """All that a plan says, its own names in place of the function's."""
    return repr((plan.arenas, plan.unplanned, plan.guards, plan.representative, plan.rungs))


@pytest.mark.parametrize("flavour", ["arena", "storages"])
def test_a_plan_is_the_one_that_a_function_has_alone(flavour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    transferred = 0
    transfer = plan_functions.planned_alike

    def counted(*arguments: object) -> Plan:
        nonlocal transferred
        transferred += 1
        return transfer(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(plan_functions, "planned_alike", counted)
    options = PlanOptions(flavour=flavour)  # type: ignore[arg-type]
    for seed in range(tries(6, 200)):
        functions = [chain("first", seed), chain("other", seed + 1000), chain("second", seed)]
        together = plan_program(program_of(*functions), Prover(), options=options)
        for one in functions:
            alone = plan_program(program_of(one), Prover(), options=options)[one.name]
            assert shown(together[one.name]) == shown(alone)
            assert together[one.name].function == one.name
        own = {made.var for made in functions[2].body.instructions if isinstance(made, AllocFresh)}
        assert together["second"].placements.keys() <= own
    assert transferred == tries(6, 200)


def test_declared_bounds_tell_functions_apart() -> None:
    first, second = chain("first", 1), replace(chain("second", 1), declared_upper={"n": 8})
    options = PlanOptions(bounds="reserve")
    plans = plan_program(program_of(first, second), Prover(), options=options)
    assert all(arena.size.as_constant is None for arena in plans["first"].arenas)
    assert all(arena.size.as_constant is not None for arena in plans["second"].arenas)
