"""Whole programs with branches, aliases, in-place kernels, packed functions, calls and casts: a plan never
changes what they compute, and no overlap that is planted in one passes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations
from random import Random

import pytest

from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.timeline import Timeline
from symalloc.planner.buffers.candidates import least_held
from symalloc.planner.check.validate import validate
from symalloc.planner.memory_plan import Arena, Flavour, Placement, Plan, PlanOptions
from symalloc.planner.plan_functions import plan_program
from symalloc.planner.planned_program import planned_program
from symalloc.program.ir import AllocFresh, Program, Var
from symalloc.program.operands import instructions_of
from symalloc.prover.domain import INT64_MIN, Budget, Domain
from symalloc.prover.prover import Prover
from symalloc.size.expr import ZERO, Expr, symbol
from tests.planner.random_programs import logs, random_program
from tests.scale import tries

pytestmark = pytest.mark.slow

SEEDS = range(tries(20, 400))
VALUES = ((0, 0, 0), (1, 1, 1), (5, 3, 7), (64, 17, 100), (5, 3, -3), (70, 3, -41), (1, 9, -1000))
BINDINGS = [{"n": n, "m": m, "s": s} for n, m, s in VALUES]
SHAPES = (
    (0, 0, 0, 0, 0),
    (1, 1, 1, 1, 1),
    (5, 3, 64, 200, -7),
    (64, 1, 7, 0, 9),
    (0, 50, 1000, 3, -1000),
    (1000, 40, 0, 64, 33),
)
PROVER, DOMAIN = Prover(), Domain(lower={"s": INT64_MIN})
OVERLAP = "they overlap while both are live"


@cache
def planned(seed: int) -> tuple[Program, dict[str, Plan]]:
    program = random_program(seed)
    return program, plan_program(program, PROVER)


def bindings(arena: Arena) -> list[dict[str, int]]:
    """Every symbol of `arena` bound, several times."""
    exprs = [arena.size, *(e for p in arena.placements for e in (p.offset, p.buffer.size))]
    late = frozenset().union(*(e.symbols for e in exprs)) - {"n", "m", "p", "s"}
    return [{"n": n, "m": m, "p": p, "s": s, **dict.fromkeys(late, k)} for n, m, p, k, s in SHAPES]


@pytest.mark.parametrize(("flavour", "handles"), [("arena", False), ("storages", False), ("arena", True)])
def test_a_planned_program_computes_what_the_unplanned_one_does(flavour: Flavour, handles: bool) -> None:
    """`handles`: half of the tensors, drawn, have to start a storage."""
    placed = 0
    for seed in SEEDS:
        program = random_program(seed)
        grounded = drawn(program, Random(seed)) if handles else frozenset[Var]()
        plans = plan_program(program, PROVER, options=PlanOptions(flavour=flavour), grounded=grounded)
        assert all_start_a_storage(plans, grounded), f"program {seed}"
        for binding in BINDINGS:
            for path in range(3):
                own, shared = (logs(program, given, binding, path) for given in ({}, plans))
                assert shared.log == own.log, f"program {seed} at {binding}, path {path}"
                placed += shared.planned
    assert placed > 250, "the programs must have something to plan"


def drawn(program: Program, draw: Random) -> frozenset[Var]:
    """Half of the allocations of a program."""
    found = (i for f in program.functions.values() for i in instructions_of(f.body))
    return frozenset(i.var for i in found if isinstance(i, AllocFresh) and draw.random() < 0.5)


def all_start_a_storage(plans: Mapping[str, Plan], grounded: Collection[Var]) -> bool:
    """Return whether those of `grounded` lie at offset 0."""
    placements = (p for plan in plans.values() for arena in plan.arenas for p in arena.placements)
    return all(p.offset == ZERO for p in placements if p.buffer.var in grounded)


def test_sizes_that_may_be_negative_are_planned_and_tried() -> None:
    planned_by_scalar, refused, ran = 0, 0, 0
    for seed in SEEDS:
        program, plans = planned(seed)
        sizes = [p.buffer.size for a in plans["main"].arenas for p in a.placements]
        planned_by_scalar += sum("s" in size.symbols for size in sizes)
        if any("s" in size.symbols for size in sizes):
            assert any("s" in g.condition.symbols for g in plans["main"].guards)
            tried = [logs(program, plans, binding, 0).log[-1] == -1 for binding in BINDINGS[4:]]
            refused, ran = refused + tried.count(True), ran + tried.count(False)
    assert planned_by_scalar > 7 and refused > 1 and ran > 1


@pytest.mark.parametrize("seed", SEEDS)
def test_no_call_takes_less_than_what_any_plan_holds(seed: int) -> None:
    program, plans = planned(seed)
    written, analyses = planned_program(program, plans).program, analyse(program)
    for name in plans:
        least, call = least_held(program, analyses, name), Timeline.of(written, name)
        for binding in (b for b in BINDINGS if least is not None and b["s"] >= 0):
            peaks = [one.only(lambda r: r.size is not None).peak(binding) for one in (least, call)]
            assert None in peaks or peaks[0] <= peaks[1]


@pytest.mark.parametrize("seed", range(tries(20, 400)))
def test_what_is_moved_is_refused_exactly_where_it_overlaps(seed: int) -> None:
    """Any overlap that shows at a binding is refused, and no binding is named at which there is none."""
    random = Random(seed)
    for plan in planned(seed)[1].values():
        for number, arena in enumerate(plan.arenas):
            for _ in range(3):
                changed = moved(arena, random)
                arenas = (*plan.arenas[:number], changed, *plan.arenas[number + 1 :])
                faults = [
                    fault
                    for fault in validate(replace(plan, arenas=arenas), DOMAIN, PROVER, machine=False)
                    if fault.problem == OVERLAP
                ]
                shown = {pair for binding in bindings(changed) for pair in overlaps(changed, binding)}
                assert shown <= {frozenset(fault.buffers) for fault in faults}
                for fault in faults:
                    assert fault.binding is not None
                    full = {**dict.fromkeys(("n", "m", "p", "s"), 0), **fault.binding}
                    assert frozenset(fault.buffers) in overlaps(changed, full)


def moved(arena: Arena, random: Random) -> Arena:
    """One buffer elsewhere: onto another, a little aside, far off, or not at all."""
    chosen = random.choice(arena.placements)
    other = random.choice(arena.placements)
    n = symbol(next(iter(sorted(chosen.buffer.size.symbols)), "n"))
    targets: list[Expr] = [
        other.offset,
        other.offset + other.buffer.size,
        chosen.offset + 64,
        chosen.offset + 64 * n,
        arena.size,
        ZERO,
    ]
    target = random.choice(targets)
    placements = tuple(replace(p, offset=target) if p is chosen else p for p in arena.placements)
    return replace(arena, placements=placements)


def overlaps(arena: Arena, binding: dict[str, int]) -> Iterator[frozenset[str]]:
    """The pairs that are live together and share a byte, by comparing all with all."""
    placed = [(p, _span(p, binding)) for p in arena.placements if _binds(binding, p)]
    for (left, (begin, end)), (right, (start, stop)) in combinations(placed, 2):
        positions = ({t for a, b in p.buffer.live for t in range(a, b)} for p in (left, right))
        if max(begin, start) < min(end, stop) and not next(positions).isdisjoint(next(positions)):
            yield frozenset((left.buffer.name, right.buffer.name))


def _binds(binding: dict[str, int], placement: Placement) -> bool:
    return (placement.offset.symbols | placement.buffer.size.symbols) <= binding.keys()


def _span(placement: Placement, binding: dict[str, int]) -> tuple[int, int]:
    begin = placement.offset.evaluate(binding)
    return begin, begin + placement.buffer.size.evaluate(binding)


def test_a_weak_prover_costs_bytes_and_never_a_plan() -> None:
    """What cannot be proved is laid out so that it can be seen: no plan hangs on the solver's luck."""
    weak = Prover(Budget(z3_steps=0, sampling_steps=50, cases=1, work=1))
    for seed in SEEDS:
        plans = plan_program(random_program(seed), weak)
        assert all(validate(plan, DOMAIN, PROVER) == () for plan in plans.values())
    assert weak.solver.asked == 0
