"""Pack a problem and prove the packing, for `symalloc pack` and `symalloc.pack`."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from itertools import product
from math import gcd, lcm
from operator import add
from random import Random
from time import perf_counter

import msgspec
import numpy as np

from symalloc.native.flat_lists import lists_of
from symalloc.native.native_functions import packer_functions
from symalloc.planner.check.plan_certificate import plan_certificate
from symalloc.planner.check.validate import PlanRefusedError, validate
from symalloc.planner.grid import Grid, Ranges, score_grid
from symalloc.planner.interference import floor_bytes, interference, live_sets, live_sums
from symalloc.planner.memory_plan import Arena, Buffer, Placement, Plan
from symalloc.planner.offsets import assemble
from symalloc.planner.packing.packing_problem import PackingProblem, ProblemError
from symalloc.planner.stack import LARGEST, SearchBudget, search
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.size.condition import Condition, ge, le
from symalloc.size.expr import Expr, constant, round_up


class Branching(IntEnum):
    """The order in which the native library branches."""

    LOWEST = 0
    CONTESTED = 1


SHORTEST = 800  # steps of an attempt; what ends sooner counts as much: to order its buffers takes as long
NOISE = 0.2  # how far, as a share of all buffers, chance moves a buffer up
FORGET = 0.5  # the part of the weights of failures that is left in the next attempt
SLICE = 500  # steps at a time; Python hears of an interrupt only between them
RULES = (Branching.LOWEST, Branching.LOWEST, Branching.LOWEST, Branching.CONTESTED)


class SearchOutcome(Enum):
    """The ways in which a search ends: `CUT` by its limit."""

    CUT = 0
    FOUND = 1
    NONE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactPacking:
    """The answer to a static packing problem.

    `offsets` are bytes, in the order of the buffers; None where nothing was found within the capacity.
    `height` is theirs, in bytes; without offsets it is a proved lower bound of the height.  `optimal`:
    without a capacity, no packing is lower; with one, the answer is final: it fits, or it is proved that none
    does.  `steps` counts the nodes of the search.
    """

    offsets: list[int] | None
    height: int
    optimal: bool
    steps: int


def pack_exactly(
    buffers: Sequence[Buffer],
    start: Sequence[int],
    *,
    capacity: int | None,
    seed: int = 0,
    steps: int | None = None,
) -> ExactPacking:
    """Pack `buffers` within `capacity` bytes or, where that is None, lower than with the offsets `start`.

    Their sizes are constants.  The search ends when the answer is final, or after about `steps` steps (no
    limit where None); the same `seed` gives the same answer.
    """
    instance = CliqueInstance.of(buffers)
    floor = instance.floor
    if capacity is not None and capacity < floor:
        return ExactPacking(offsets=None, height=floor, optimal=True, steps=0)
    sizes = [b.size.evaluate({}) for b in buffers]
    grain = gcd(*sizes, *(b.alignment for b in buffers)) or 1
    run = _PackingRun(
        sizes=sizes,
        instance=instance,
        seed=seed,
        most=steps,
        grain=grain,
        floor=-(-floor // grain) * grain,
        best=list(start),
        height=max(map(add, start, sizes), default=0),
    )
    return run.lowest() if capacity is None else run.within(capacity)


def steps_within(work: int, neighbours: Sequence[Sequence[int]]) -> int:
    """Return the steps of `pack_exactly` that cost `work`: one costs as much as a buffer has neighbours."""
    return work * len(neighbours) // max(sum(map(len, neighbours)), len(neighbours), 1)


@dataclass(slots=True, kw_only=True)
class _PackingRun:
    """One call of `pack_exactly`.

    Invariant:  `best` is the lowest packing so far, `height` its height; no packing is lower than `floor`;
    all heights worth trying are multiples of `grain`.
    """

    sizes: Sequence[int]
    instance: CliqueInstance
    seed: int
    most: int | None
    grain: int
    floor: int
    best: list[int]
    height: int
    steps: int = 0

    def within(self, capacity: int) -> ExactPacking:
        """Searches for a packing within `capacity` bytes."""
        if self.height > capacity:
            outcome = self.attempt(Attempts(self.instance, capacity, self.seed), None)
            if outcome is not SearchOutcome.FOUND:
                proved = outcome is SearchOutcome.NONE
                floor = max(self.floor, capacity + 1) if proved else self.floor
                return ExactPacking(offsets=None, height=floor, optimal=proved, steps=self.steps)
        return ExactPacking(offsets=self.best, height=self.height, optimal=True, steps=self.steps)

    def lowest(self) -> ExactPacking:
        """Searches for the lowest packing: tries heights between the floor and the best in rounds, each with
        twice the steps of the one before where that found nothing.
        """
        open_: dict[int, Attempts] = {}
        limit = 2 * SHORTEST
        while self.floor < self.height and not self.is_over():
            for height in self.heights():
                if height not in open_:
                    open_[height] = Attempts(self.instance, height, self.seed)
                outcome = self.attempt(open_[height], limit)
                if outcome is SearchOutcome.NONE:
                    self.floor = height + self.grain
                if outcome is not SearchOutcome.CUT:
                    break
            else:
                limit *= 2
        return ExactPacking(
            offsets=self.best, height=self.height, optimal=self.floor >= self.height, steps=self.steps
        )

    def heights(self) -> Iterable[int]:
        """Heights in bytes that would be better than the best: the floor first, then less and less ambitious
        ones.
        """
        gap = (self.height - self.floor) // self.grain
        return dict.fromkeys(self.floor + gap // part * self.grain for part in (gap + 1, 8, 4, 2))

    def attempt(self, attempts: Attempts, limit: int | None) -> SearchOutcome:
        """Goes on with `attempts` for `limit` steps and takes what it finds."""
        before = attempts.steps
        left = None if self.most is None else self.most - self.steps
        limit = min((n for n in (limit, left) if n is not None), default=None)
        outcome = attempts.run(limit=limit)
        self.steps += attempts.steps - before
        if outcome is SearchOutcome.FOUND:
            found = attempts.offsets
            self.best = [found.get(i, 0) for i in range(len(self.sizes))]
            self.height = max(map(add, self.best, self.sizes), default=0)
        return outcome

    def is_over(self) -> bool:
        return self.most is not None and self.steps >= self.most


class Attempts:
    """Attempts to pack `instance` within `capacity` bytes, which hold each buffer by itself; the same seed
    makes the same attempts.  Raises MemoryError.

    `steps` counts what they cost: nodes of the search, but at least `SHORTEST` for each.  What fails once is
    remembered from one attempt to the next.
    """

    def __init__(self, instance: CliqueInstance, capacity: int, seed: int) -> None:
        self.instance = instance
        self.steps = 0
        self._plans = _plans(instance, Random(seed))
        self._search = packer_functions.create(
            -(-capacity // instance.unit),
            _int64(instance.sizes),
            _int64(instance.alignments),
            _int64((capacity - nbytes) // instance.unit for nbytes in instance.nbytes),
            lists_of(instance.cliques),
            lists_of(instance.members),
            lists_of(instance.neighbours),
        )

    @property
    def offsets(self) -> dict[int, int]:
        """Offsets in bytes by id: the packing, where the last attempt found one."""
        offsets = array("q", packer_functions.offsets(self._search))
        return {id_: self.instance.unit * at for id_, at in zip(self.instance.ids, offsets, strict=True)}

    def run(self, *, limit: int | None = None) -> SearchOutcome:
        """Go on for about `limit` more steps (no end where None)."""
        end = None if limit is None else self.steps + limit
        outcome = SearchOutcome.CUT
        while outcome is SearchOutcome.CUT and (end is None or self.steps < end):
            priorities, rule, steps = next(self._plans)
            before = packer_functions.steps(self._search)
            outcome = self.attempt(priorities, rule, before + steps)
            self.steps += max(packer_functions.steps(self._search) - before, SHORTEST)
        return outcome

    def attempt(self, priorities: Sequence[int], rule: Branching, last: int) -> SearchOutcome:
        """Search anew until step `last`: of the buffers that may come next, the one of the highest priority
        is tried first.
        """
        packer_functions.begin(self._search, array("i", priorities).tobytes(), rule, FORGET)
        outcome = SearchOutcome.CUT
        while outcome is SearchOutcome.CUT and (left := last - packer_functions.steps(self._search)) > 0:
            outcome = SearchOutcome(packer_functions.go(self._search, min(SLICE, left)))
        return outcome


def _int64(numbers: Iterable[int]) -> bytes:
    return array("q", numbers).tobytes()


def luby(number: int) -> int:
    """The `number`-th term (from 1) of 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 …"""
    while (number + 1) & number:
        number -= (1 << (number.bit_length() - 1)) - 1
    return (number + 1) >> 1


def _plans(instance: CliqueInstance, chance: Random) -> Iterator[tuple[list[int], Branching, int]]:
    """Priorities, rule and number of steps of one attempt after another."""
    orders, number = _orders(instance), 0
    while True:
        turn, place = divmod(number, len(RULES))
        ranks = orders[(number + turn) % len(orders)]
        noise = NOISE * len(ranks) if turn else 0.0
        moved = [rank + noise * chance.random() for rank in ranks]
        yield _ranks(len(ranks), moved.__getitem__), RULES[place], SHORTEST * luby(number + 1)
        number += 1


def _orders(instance: CliqueInstance) -> list[list[int]]:
    """Ranks by area, by how many cliques a buffer is in, by the fullest clique it is in, and by size."""
    sizes, durations = instance.sizes, instance.durations
    full = [sum(sizes[i] for i in members) for members in instance.members]
    scores: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda i: (sizes[i] * durations[i],),
        lambda i: (len(instance.cliques[i]), sizes[i]),
        lambda i: (max(full[c] for c in instance.cliques[i]), sizes[i] * durations[i]),
        lambda i: (sizes[i],),
    )
    return [_ranks(len(sizes), score) for score in scores]


def _ranks(count: int, score: Callable[[int], float | tuple[int, ...]]) -> list[int]:
    """The place of each of `count` buffers in the order of `score`, the least first."""
    ranks = [0] * count
    for rank, buffer in enumerate(sorted(range(count), key=score)):
        ranks[buffer] = rank
    return ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class CliqueInstance:
    """A problem with its buffers numbered 0, 1, … in the order of their first clique, in units.

    `ids` are the indices of these buffers in the sequence that was given; buffers of no size and those that
    are never live are left out.  A unit is the greatest common divisor of the alignments, in bytes; every
    offset is a multiple of it, so `sizes` are rounded up to it.  `members` lists for each clique (a maximal
    set of buffers live at one position) its buffers, `cliques` the other way round.
    """

    ids: tuple[int, ...]
    unit: int
    nbytes: tuple[int, ...]
    sizes: tuple[int, ...]
    alignments: tuple[int, ...]
    durations: tuple[int, ...]
    cliques: tuple[tuple[int, ...], ...]
    members: tuple[tuple[int, ...], ...]
    neighbours: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, buffers: Sequence[Buffer]) -> CliqueInstance:
        """Return the instance of `buffers`, whose sizes are constants."""
        sized = [b.live if b.size.evaluate({}) else () for b in buffers]
        together = _maximal(map(frozenset, live_sets(sized)))
        within: dict[int, list[int]] = {}
        for number, group in enumerate(together):
            for id_ in group:
                within.setdefault(id_, []).append(number)
        ids = sorted(within, key=lambda i: (within[i][0], i))
        index = {id_: i for i, id_ in enumerate(ids)}
        members = tuple(tuple(sorted(index[id_] for id_ in group)) for group in together)
        inside = tuple(tuple(within[id_]) for id_ in ids)
        ordered = [buffers[id_] for id_ in ids]
        nbytes = tuple(b.size.evaluate({}) for b in ordered)
        unit = gcd(*(b.alignment for b in ordered)) or 1
        return cls(
            ids=tuple(ids),
            unit=unit,
            nbytes=nbytes,
            sizes=tuple(-(-size // unit) for size in nbytes),
            alignments=tuple(b.alignment // unit for b in ordered),
            durations=tuple(sum(end - begin for begin, end in b.live) for b in ordered),
            cliques=inside,
            members=members,
            neighbours=tuple(
                tuple(sorted({j for c in mine for j in members[c]} - {i})) for i, mine in enumerate(inside)
            ),
        )

    @property
    def floor(self) -> int:
        """A lower bound of the height in bytes: the largest sum of sizes in one clique.

        Where all share an alignment every buffer but the topmost takes its size rounded up to it.
        """
        unit = self.unit if set(self.alignments) <= {1} else 1
        return max((_height_of([self.nbytes[i] for i in group], unit) for group in self.members), default=0)


def align_up(nbytes: int, alignment: int) -> int:
    """Return the least multiple of `alignment` that is not below `nbytes`."""
    return -(-nbytes // alignment) * alignment


def _height_of(sizes: Sequence[int], step: int) -> int:
    rounded = [align_up(size, step) for size in sizes]
    return sum(rounded) - max(r - s for r, s in zip(rounded, sizes, strict=True))


def _maximal(sets: Iterable[frozenset[int]]) -> tuple[frozenset[int], ...]:
    """Drop the sets that are within another, and repetitions; keep the order."""
    unique = tuple(dict.fromkeys(s for s in sets if s))
    holding: dict[int, list[frozenset[int]]] = {}
    for s in unique:
        for id_ in s:
            holding.setdefault(id_, []).append(s)
    return tuple(s for s in unique if not any(s < other for other in holding[next(iter(s))]))


DENSE = 4096  # all values up to this one, where there is one symbol
CLOSE = 64  # for two symbols, all values up to this one, then a geometric sequence
STEPS = 96


class FloorRatio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes of the arena and of the floor at one binding, and their ratio, 1 without a live byte."""

    binding: Mapping[str, int]
    bytes: int
    floor: int
    ratio: float


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
    ordered = sorted(bindings, key=lambda b: tuple(b.values()))
    both = [(b, arena.evaluate(b), floor_bytes(sums, b)) for b in ordered]
    return tuple(
        FloorRatio(binding=b, bytes=taken, floor=least, ratio=taken / least if least else 1.0)
        for b, taken, least in both
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
