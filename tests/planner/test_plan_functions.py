"""Planning whole programs: callees, options, certificates, refusals; what gave in says how."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from symalloc.analysis.interprocedural import analyse
from symalloc.planner import memory_plan, plan_functions
from symalloc.planner import offsets as offsets_module
from symalloc.planner.check.plan_certificate import INDEX
from symalloc.planner.check.validate import PlanFault, PlanRefusedError, validate
from symalloc.planner.memory_plan import Arena, Buffer, Plan, PlanOptions
from symalloc.planner.offsets import assemble
from symalloc.planner.plan_functions import Layout, LayoutSearch, certify, plan_program
from symalloc.planner.stack import SearchBudget
from symalloc.program.ir import Function, Origin, Program
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.condition import ge
from symalloc.size.expr import symbol
from tests.planner.brute_stackings import buffer
from tests.planner.packing.test_packing_problem import CROSSED
from tests.program.build import Body, param, program_of, tensor_of


def chain(name: str, *extents: str, calls: str | None = None) -> Function:
    """Tensors of `extents`, each copied from the one before; then a call of `calls` on the last."""
    x = param("x", "n")
    body = Body(x, name=name)
    last = x
    for index, extent in enumerate(extents):
        made = body.fresh(extent, name=f"t{index}")
        body.call("copy", last, made)
        last = made
    if calls is not None:
        body.function(calls, last, kind=tensor_of("n"))
    body.call("read", last)
    return body.finish(x, symbols={"n": Origin.DIMENSION})


def simple(*extents: str) -> Program:
    return program_of(chain("main", *extents))


def only(plans: dict[str, Plan]) -> Plan:
    (plan,) = plans.values()
    return plan


def test_neighbours_in_a_chain_are_apart_and_the_rest_shares() -> None:
    plan = only(plan_program(simple("64*n", "64*n", "64*n", "64*n"), Prover()))
    (arena,) = plan.arenas
    assert str(arena.size) == "128*n"
    assert [str(p.offset) for p in arena.placements] in (["0", "64*n"] * 2, ["64*n", "0"] * 2)
    assert [str(g.condition) for g in plan.guards] == [f"n <= {(2**63 - 1) // 128}"]


def test_no_arena_is_held_beside_what_a_callee_takes() -> None:
    callee, caller = chain("inner", "64*n"), chain("main", "128*n", "n", calls="inner")
    plans = plan_program(program_of(caller, callee), Prover())
    assert list(plans) == ["main", "inner"], "in the order of the program"
    together = [{p.buffer.name for p in arena.placements} for arena in plans["main"].arenas]
    assert together == [{"t0"}, {"t1"}]


def unproved_later() -> Callable[..., Layout | None]:
    """A search that finds nothing any more from the fourth time on."""
    real, asked = LayoutSearch.layout, 0

    def search(*args: Any, **named: Any) -> Layout | None:
        nonlocal asked
        asked += 1
        return real(*args, **named) if asked > 3 else None

    return search


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ([(LayoutSearch, "layout", unproved_later())], ()),
        ([(memory_plan, "BASE", 0), (memory_plan, "EACH", 0)], ("96*n", "128*n")),
        ([(offsets_module, "MOST_COMPARED", -2)], ()),  # spent before the first
    ],
)
def test_what_is_not_proved_or_too_much_work_shares_whole_storages(
    changes: list[tuple[object, str, object]], more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for change in changes:
        monkeypatch.setattr(*change)
    plan = only(plan_program(simple("64*n", "32*n", "64*n", "32*n", *more), Prover()))
    (fallback,) = plan.fallbacks
    assert fallback.kind == "storages" and fallback.ratio >= 1
    assert len(plan.arenas) > 1
    assert all(p.offset == 0 for a in plan.arenas for p in a.placements)
    assert validate(plan, Domain(), Prover(), machine=False) == ()


def laid_out(*buffers: Buffer) -> Layout:
    domain, prover = Domain(), Prover()
    search = LayoutSearch(function=chain("main"), domain=domain, prover=prover, options=PlanOptions())
    found = search.layout([buffers])
    assert found is not None
    assert validate(Plan(function="main", arenas=found.arenas), domain, prover, machine=False) == ()
    return found


def test_a_search_that_ends_above_the_floor_says_so() -> None:
    with patch.object(plan_functions.SearchBudget, "of", lambda *_, **__: SearchBudget(work=0)):
        found = laid_out(*(buffer(i, size, (begin, end)) for i, (size, begin, end) in enumerate(CROSSED)))
    (fallback,) = found.fallbacks
    assert fallback.kind == "search" and 1.2 < fallback.ratio < 1.5


@pytest.mark.parametrize("guest", ["64*n", "128*n", "64*n*(n // 5000)"])
def test_what_lies_in_the_memory_of_a_result_must_not_outgrow_it(guest: str) -> None:
    result = replace(buffer(1, "64*n + 64", (2, 4)), var=param("y", "n"), returned=True)
    outgrown = laid_out(buffer(0, guest, (0, 2)), result).outgrown
    assert outgrown == (set() if guest == "64*n" else {result.var})


def test_what_is_not_proved_with_storages_either_is_refused() -> None:
    fault = PlanFault(problem="is open", buffers=("t0",), constraint=ge(symbol("n"), 1), binding=None)
    with (
        patch.object(plan_functions, "validate", lambda *_: (fault,)),
        pytest.raises(PlanRefusedError, match="`main` is refused: `t0`: is open"),
    ):
        plan_program(simple("64*n"), Prover())


def test_what_the_packer_gets_wrong_is_refused() -> None:
    def wrong(*args: object, **named: object) -> Arena:
        arena = assemble(*args, **named)  # type: ignore[arg-type]
        return replace(arena, placements=tuple(replace(p, offset=p.offset * 0) for p in arena.placements))

    with (
        patch.object(plan_functions, "assemble", wrong),
        pytest.raises(PlanRefusedError, match=r"`main` is refused: `t0`, `t1`: they overlap .* at n = 1"),
    ):
        plan_program(simple("64*n", "64*n"), Prover())


def test_constant_arenas_end_before_results_are_made() -> None:
    """The second tensor is dead when the result is made, which is as large."""
    body = Body(param("x", "n"))
    allocated = "; ".join(f"{name} = fresh 65536*n" for name in "abc")
    steps = f"{allocated}; copy x a b; copy b c; read a c; r = fresh 65536*n; copy c r"
    function = body.finish(body.follow(steps)["r"], symbols={"n": Origin.DIMENSION}, declared_upper={"n": 8})
    plan = only(plan_program(program_of(function), Prover(), options=PlanOptions(bounds="reserve")))
    assert len(plan.arenas) > 1 and all(a.size.as_constant is not None for a in plan.arenas)
    assert all(p.buffer.name != "r" for a in plan.arenas for p in a.placements)


def test_a_certificate_is_made_for_all_functions() -> None:
    program = program_of(chain("main", "64*n", calls="inner"), chain("inner", "64*n"))
    analyses, prover = analyse(program), Prover()
    files = certify(plan_program(program, prover, analyses=analyses), analyses, prover, {"inner": "text"})
    index = json.loads(files[INDEX])
    text = "1-inner/function.py"
    assert [(p["function"], p["text"]) for p in index["plans"]] == [("main", None), ("inner", text)]
    rows = [row for plan in index["plans"] for row in plan["claims"]]
    assert rows and {row["expected"] for row in rows} == {"unsat"}
    assert files.keys() == {INDEX, text, *(row["file"] for row in rows)}


def test_declared_bounds_steer_and_are_not_relied_on() -> None:
    function = replace(chain("main", "64*n", "2**40*n"), declared_upper={"n": 8})
    plan = only(plan_program(program_of(function), Prover()))
    assert plan.guards, "the bound of 8 is declared, nothing enforces it"
    assert validate(replace(plan, guards=()), Domain(), Prover())
