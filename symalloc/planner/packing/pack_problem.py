"""Pack a problem and prove the packing, for `symalloc pack` and `symalloc.pack`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import lcm
from time import perf_counter

import numpy as np

from symalloc.planner.check.plan_certificate import plan_certificate
from symalloc.planner.check.validate import PlanRefusedError, validate
from symalloc.planner.grid import Grid, Ranges, score_grid
from symalloc.planner.interference import floor_bytes, interference, live_sums
from symalloc.planner.memory_plan import Arena, Buffer, Placement, Plan
from symalloc.planner.offsets import assemble
from symalloc.planner.packing.exact import align_up, pack_exactly, steps_within
from symalloc.planner.packing.packing_problem import PackingProblem, ProblemError
from symalloc.planner.stack import LARGEST, SearchBudget, search
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.size.condition import Condition, ge, le
from symalloc.size.expr import Expr, constant, round_up

DENSE = 4096  # all values up to this one, where there is one symbol
CLOSE = 64  # for two symbols, all values up to this one, then a geometric sequence
STEPS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorRatio:
    """Bytes of the arena and of the floor at one binding; without a live byte the ratio is 1."""

    binding: Mapping[str, int]
    bytes: int
    floor: int

    @property
    def ratio(self) -> float:
        """Arena over floor."""
        return self.bytes / self.floor if self.floor else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """A packing of a problem, proved for all bindings.

    `offsets` are bytes by id, `arena` is the whole; `ratios` compares it with the floor (the largest sum of
    bytes live at one position) at bindings that go past the declared bounds. `overrun` is a binding
    within the declared bounds at which the arena exceeds the capacity that was asked for (empty for a
    static problem); None where it fits. `certificate` holds the proof as files, where it was asked for.
    """

    problem: PackingProblem
    arena: Expr
    offsets: Mapping[str, Expr]
    ratios: tuple[FloorRatio, ...]
    seconds: float
    overrun: Mapping[str, int] | None = None
    certificate: Mapping[str, str] | None = None

    @property
    def worst_ratio(self) -> float:
        """The worst of `ratios`."""
        return max(r.ratio for r in self.ratios)

    @property
    def mean_ratio(self) -> float:
        """The mean of `ratios`."""
        return sum(r.ratio for r in self.ratios) / len(self.ratios)


def pack_problem(
    problem: PackingProblem,
    *,
    budget: SearchBudget,
    capacity: int | None = None,
    certify: bool = False,
    prover: Prover | None = None,
) -> Packing:
    """Return a proved packing of `problem`; `capacity` is in bytes.

    Declared maxima are not relied on.  Raises ProblemError where a size can be negative or is not defined,
    PlanRefusedError where the packing cannot be proved.
    """
    start = perf_counter()
    prover = prover or Prover()
    domain = _domain(problem, prover)
    arena, representative = _arena(problem, budget, capacity, domain, prover)
    plan = Plan(function=problem.name, arenas=(arena,), representative=representative)
    faults = validate(plan, domain, prover, machine=False)
    if faults:
        raise PlanRefusedError.of(problem.name, faults)
    return Packing(
        problem=problem,
        arena=arena.size,
        offsets={p.buffer.name: p.offset for p in arena.placements},
        ratios=_ratios_of(arena.size, live_sums(problem.buffers), problem.ranges),
        overrun=None if capacity is None else _overrun(arena.size, capacity, problem, prover),
        certificate=plan_certificate([(plan, domain)], prover, machine=False) if certify else None,
        seconds=perf_counter() - start,
    )


def _domain(problem: PackingProblem, prover: Prover) -> Domain:
    """Return the domain that packings are proved over.

    It starts at each symbol's declared minimum, at 1 where all sizes make sense there.
    """
    lows = {name: low for name, (low, _) in problem.ranges.items()}
    wide = Domain(lower={name: min(low, 1) for name, low in lows.items()})
    if all(_holds(claim, wide, prover) for _, claim in _claims(problem)):
        return wide
    domain = Domain(lower=lows)
    for index, claim in _claims(problem):
        proof = prover.prove(claim, domain)
        if proof.verdict is not Verdict.ALWAYS_VALID:
            raise ProblemError(_nonsense(problem, index, claim, proof.counterexample))
    return domain


def _claims(problem: PackingProblem) -> list[tuple[int, Condition]]:
    """Return what must hold of the sizes, each with the index of a buffer that needs it.

    Divisors are at least 1, and no size is negative.
    """
    claims: dict[Condition, int] = {}
    for index, buffer in enumerate(problem.buffers):
        for divisor in sorted(buffer.size.divisors, key=lambda e: e.key):
            claims.setdefault(ge(divisor, 1), index)
        claims.setdefault(ge(buffer.size, 0), index)
    return [(index, claim) for claim, index in claims.items()]


def _nonsense(problem: PackingProblem, index: int, claim: Condition, point: Mapping[str, int] | None) -> str:
    buffer = problem.buffers[index]
    at = "" if point is None else f": not at {_written(point)}"
    return (
        f"buffers[{index}] (`{buffer.name}`).size: `{buffer.size}` makes sense only where {claim}{at}; give "
        "the symbols a `min` from which it does"
    )


def _arena(
    problem: PackingProblem, budget: SearchBudget, capacity: int | None, domain: Domain, prover: Prover
) -> tuple[Arena, Mapping[str, int]]:
    """Return the arena, and the binding at which buffers were stacked."""
    if not problem.symbols:
        offsets = _pack_static(problem.buffers, budget, capacity)
        placements = tuple(map(Placement, problem.buffers, map(constant, offsets)))
        return Arena.of(constant(_height(problem.buffers, offsets)), placements), {}
    found = search(_rounded(problem.buffers), problem.ranges, budget)
    return assemble(problem.buffers, found.stacking, domain, prover), found.representative


def _overrun(arena: Expr, capacity: int, problem: PackingProblem, prover: Prover) -> Mapping[str, int] | None:
    """Return a binding within the declared bounds at which `arena` exceeds `capacity`, if there is one."""
    upper = {name: high for name, (_, high) in problem.ranges.items() if high is not None}
    domain = Domain(lower={name: low for name, (low, _) in problem.ranges.items()}, upper=upper)
    proof = prover.prove(le(arena, capacity), domain)
    if proof.verdict is Verdict.ALWAYS_VALID:
        return None
    return proof.counterexample if proof.counterexample is not None else {}


def _holds(claim: Condition, domain: Domain, prover: Prover) -> bool:
    return prover.prove(claim, domain, explain=False).verdict is Verdict.ALWAYS_VALID


def _written(point: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in sorted(point.items())) or "any binding"


# -- sizes that are all known --------------------------------------------------------------------------------


def _pack_static(buffers: Sequence[Buffer], budget: SearchBudget, capacity: int | None) -> list[int]:
    """Return offsets in bytes, in the order of `buffers`.

    Greedy packings are tried first, then the exact method, then local search; the first that reaches the
    floor or lies within `capacity` is the answer, otherwise the lowest.
    """
    target = floor_bytes(live_sums(buffers), {}) if capacity is None else capacity
    best = _stacked(buffers, replace(budget, work=0))
    if _height(buffers, best) > target and sum(b.size.evaluate({}) + b.alignment for b in buffers) < LARGEST:
        steps = steps_within(budget.exact if capacity is None else budget.capacity, interference(buffers))
        exact = pack_exactly(buffers, best, capacity=capacity, seed=budget.seed, steps=steps).offsets
        best = best if exact is None else exact
    if _height(buffers, best) <= target:
        return best
    return min(best, _stacked(buffers, budget), key=lambda offsets: _height(buffers, offsets))


def _stacked(buffers: Sequence[Buffer], budget: SearchBudget) -> list[int]:
    """Return the offsets of the best stacking found, each buffer at the lowest multiple of its alignment
    above those below.
    """
    found = search(_rounded(buffers), {}, budget).stacking
    sizes = [b.size.evaluate({}) for b in buffers]
    offsets = [0] * len(buffers)
    for i in found.order:
        top = max((offsets[j] + sizes[j] for j in found.below[i]), default=0)
        offsets[i] = align_up(top, buffers[i].alignment)
    return offsets


def _height(buffers: Sequence[Buffer], offsets: Sequence[int]) -> int:
    """Return the end of the topmost buffer in bytes; 0 where there is none."""
    ends = (offset + b.size.evaluate({}) for b, offset in zip(buffers, offsets, strict=True))
    return max(ends, default=0)


def _rounded(buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
    """Return the buffers at the sizes that they take up in a pile: what lies on one starts at a multiple."""
    step = lcm(*(b.alignment for b in buffers))
    return tuple(replace(b, size=round_up(b.size, step)) for b in buffers)


# -- the arena beside the floor, far past declared bounds ---------------------------------------------------


def _ratios_of(arena: Expr, sums: Sequence[Expr], ranges: Ranges) -> tuple[FloorRatio, ...]:
    """The ratios over the grid that searches use, and at the worst binding of a far denser one.

    `sums` are the live sums of the floor.
    """
    grid = score_grid((arena, *sums), ranges)
    bindings = [grid.binding(point) for point in range(len(grid))]
    dense = Grid(names=grid.names, points=tuple(_dense(grid.names, ranges)))
    if len(dense):
        floors = np.maximum(dense.values(sums).max(axis=0, initial=0.0), 1.0)
        worst = dense.binding(int((dense.values([arena])[0] / floors).argmax()))
        if worst not in bindings:
            bindings.append(worst)
    return tuple(
        FloorRatio(binding=b, bytes=arena.evaluate(b), floor=floor_bytes(sums, b))
        for b in sorted(bindings, key=lambda b: tuple(b.values()))
    )


def _dense(names: Sequence[str], ranges: Ranges) -> Iterator[tuple[int, ...]]:
    """Points of a dense grid over one or two symbols; none for more."""
    lows = [max(ranges.get(name, (1, None))[0], 1) for name in names]
    if len(names) == 1:
        yield from ((extent,) for extent in range(lows[0], lows[0] + DENSE))
    if len(names) == 2:
        yield from product(*(_steps(low) for low in lows))


def _steps(low: int) -> list[int]:
    spread = np.geomspace(low + CLOSE, low + DENSE, STEPS).astype(int).tolist()
    return sorted({*range(low, low + CLOSE), *spread})
