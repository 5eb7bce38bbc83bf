"""The layouts of a function, the tightest first, then down a ladder of larger ones that are easier to prove.

What starts a storage lies there at offset 0, whatever the rung.  Groups of equal structure, as layers have
them, are packed once.  Where an arena may come out above the floor a rung says why, and by how much among the
shapes that were looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf
from typing import TypeVar

from symalloc.planner.grid import Ranges, sample_grid
from symalloc.planner.live_bytes import LiveBytes
from symalloc.planner.memory_plan import Arena, Buffer, Placement, Rung, RungKind
from symalloc.planner.offsets import PROVER_BUDGET, FormulasTooLongError, assemble, storage
from symalloc.planner.plan_budget import PlanBudget
from symalloc.planner.planner_options import PlanOptions
from symalloc.planner.stack import PERFECT, SearchBudget, SearchResult, search
from symalloc.planner.worst_ratio import worst_ratio
from symalloc.program.ir import Function, Var
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.expr import Expr

Value = TypeVar("Value")

WRITTEN_EACH = 20  # what a term of a formula counts that is proved and written
NOTICED = 4096  # bytes above its floor that an arena may take, whatever the ratio

_REASONS: Mapping[RungKind, str] = {
    "search": "no stacking at the floor was found within the budget of the search",
    "bounds": "sums took the place of others that they are at least, so that formulas stay short",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Arenas, the binding that they were stacked at, and the rungs that were taken."""

    arenas: tuple[Arena, ...]
    representative: Mapping[str, int]
    rungs: tuple[Rung, ...] = ()


class LooseError(Exception):
    """An arena is packed so much above its floor that another choice of arenas may take less."""


class OutgrownError(Exception):
    """The memory of `results` would have to be larger than they are, for what else lies in it."""

    def __init__(self, results: frozenset[Var]) -> None:
        super().__init__(", ".join(sorted(result.name for result in results)))
        self.results = results


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSearch:
    """Finds layouts of `function` over `domain`, of one choice of arenas after another.

    All of them spend `budget`, and what was stacked once is `known`: most groups come again.
    """

    function: Function
    domain: Domain
    prover: Prover
    budget: PlanBudget = field(default_factory=PlanBudget)
    known: dict[Hashable, SearchResult] = field(default_factory=dict)

    def layouts(
        self, buffers: Sequence[Buffer], options: PlanOptions, *, loosest: float = inf
    ) -> Iterator[Layout]:
        """Yield the tightest layout found first, then larger ones that are easier to prove.

        There may be none, where all have formulas that are too long.
        Raises OutgrownError where that makes the memory of a result larger than it is, as soon as it is seen,
        and LooseError where an arena has more than `loosest` times its floor.
        """
        for layout in self._ladder(buffers, options, loosest):
            _refuse(arena.result for arena in layout.arenas if _outgrows(arena))
            yield layout

    def _ladder(self, buffers: Sequence[Buffer], options: PlanOptions, loosest: float) -> Iterator[Layout]:
        """Yield the layouts, whatever the memory of results would have to be; raises as `layouts` does."""
        domain, prover = self.domain, self.prover
        stored = _by_arena((b for b in buffers if b.grounded), apart=options.constants_apart)
        loose = _by_arena((b for b in buffers if not b.grounded), apart=options.constants_apart)
        groups = [_ArenaBuffers(group) for group in loose]
        _refuse(_outgrown(group, domain) for group in groups)
        ranges = _ranges(self.function, buffers)
        budget = SearchBudget.of(options.effort, seed=options.seed)
        results = _once_each(
            groups, lambda group: search(group.buffers, ranges, budget, self.budget), self.known
        )
        if any(one.score.worst > loosest and one.excess > NOTICED for one in results):
            raise LooseError
        representative = {
            name: value for one in reversed(results) for name, value in one.representative.items()
        }
        stacked = list(zip(groups, results, strict=True))
        asked = 0 if options.effort == "quick" else PROVER_BUDGET
        for questions in dict.fromkeys((asked, 0)):
            try:
                arenas = self._assembled(stacked, questions)
            except FormulasTooLongError:
                continue
            self.budget.spend(_written(arenas))
            if self.budget.exhausted:
                continue
            if any(map(partial(_loose, domain=domain, loosest=loosest), groups, arenas)):
                raise LooseError
            storages = [storage(group, domain, prover, prover_budget=questions) for group in stored]
            rungs = _rungs(stacked, arenas, storages, domain)
            yield Layout(arenas=(*arenas, *storages), representative=representative, rungs=rungs)

    def _assembled(
        self, stacked: Sequence[tuple[_ArenaBuffers, SearchResult]], questions: int
    ) -> tuple[Arena, ...]:
        """Return an arena for each group."""
        stackings = {id(group): result.stacking for group, result in stacked}
        groups = [group for group, _ in stacked]

        def made(group: _ArenaBuffers) -> Arena:
            chosen = stackings[id(group)]
            return assemble(
                group.buffers, chosen, self.domain, self.prover, prover_budget=questions, budget=self.budget
            )

        arenas = _once_each(groups, made, {})
        return tuple(_with_buffers(arena, group.buffers) for arena, group in zip(arenas, groups, strict=True))


def _written(arenas: Sequence[Arena]) -> int:
    """Return what it counts to prove the formulas of arenas and to write them down."""
    formulas = {e for arena in arenas for e in (arena.size, *(p.offset for p in arena.placements))}
    return WRITTEN_EACH * sum(len(formula.terms) for formula in formulas)


def _loose(group: _ArenaBuffers, arena: Arena, domain: Domain, loosest: float) -> bool:
    """Return whether an arena takes noticeably more than `loosest` times its floor at a sample."""

    return (
        loosest < inf
        and len(group.buffers) > 1
        and any(
            size - floor > max(NOTICED, (loosest - 1) * floor)
            for size, floor in group.against_floor(arena.size, domain)
        )
    )


def _with_buffers(arena: Arena, buffers: Sequence[Buffer]) -> Arena:
    """Return `arena`, made for buffers of the same structure, with `buffers` in it."""
    if arena.placements[0].buffer is buffers[0]:
        return arena  # it was made for these
    placed = (Placement(b, p.offset) for b, p in zip(buffers, arena.placements, strict=True))
    return replace(Arena.of(arena.size, placed), raised=arena.raised)


class HashedOnce:
    """A long value that is looked up: a tuple is hashed anew each time, with all that it holds."""

    __slots__ = ("_hash", "_value")

    def __init__(self, value: Hashable) -> None:
        self._value, self._hash = value, hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashedOnce) and self._value == other._value


@dataclass(frozen=True)
class _ArenaBuffers:
    """The buffers of one arena."""

    buffers: Sequence[Buffer]

    @cached_property
    def structure(self) -> Hashable:
        """All that stacking depends on; of live ranges the order of their ends is enough."""
        positions = sorted({position for b in self.buffers for interval in b.live for position in interval})
        number = {position: count for count, position in enumerate(positions)}
        lives = tuple([tuple([(number[begin], number[end]) for begin, end in b.live]) for b in self.buffers])
        kinds: dict[tuple[Expr, int], int] = {}
        known: dict[tuple[int, int], int] = {}  # most of what is equal is one object
        for b in self.buffers:
            if (id(b.size), b.alignment) not in known:
                known[id(b.size), b.alignment] = kinds.setdefault((b.size, b.alignment), len(kinds))
        of_each = tuple([known[id(b.size), b.alignment] for b in self.buffers])
        return HashedOnce((lives, of_each, tuple(kinds)))

    @cached_property
    def live(self) -> LiveBytes:
        """The bytes that are live together."""
        return LiveBytes(self.buffers)

    def against_floor(self, size: Expr, domain: Domain) -> Iterable[tuple[float, float]]:
        """Return the bytes of `size` and the most that are live together, at the samples of `domain`, but for
        those at which a divisor is zero.
        """
        return self.live.beside(size, sample_grid(domain, self.names))

    @cached_property
    def names(self) -> Sequence[str]:
        """The symbols of all sizes, in order."""
        sizes = {id(b.size): b.size for b in self.buffers}
        return sorted(frozenset().union(*(size.symbols for size in sizes.values())))


def _once_each(
    groups: Iterable[_ArenaBuffers], make: Callable[[_ArenaBuffers], Value], known: dict[Hashable, Value]
) -> list[Value]:
    """Return what `make` makes of each group, made once for those of equal structure; `known` were made."""
    found = []
    for group in groups:
        if group.structure not in known:
            known[group.structure] = make(group)
        found.append(known[group.structure])
    return found


# -- the memory of results ---------------------------------------------------------------------------------


def _refuse(outgrown: Iterable[Buffer | None]) -> None:
    """Raise OutgrownError for the results that there are."""
    found = frozenset(result.var for result in outgrown if result is not None and result.var is not None)
    if found:
        raise OutgrownError(found)


def _outgrows(arena: Arena) -> bool:
    return arena.result is not None and arena.size != arena.result.size


def _outgrown(group: _ArenaBuffers, domain: Domain) -> Buffer | None:
    """Return the result in whose memory more is live, at a sample of `domain`, than it holds.

    No stacking of such a group is worth the search.
    """
    result = next((b for b in group.buffers if b.returned), None)
    if result is None or len(group.buffers) == 1:
        return None
    outgrown = any(floor > size for size, floor in group.against_floor(result.size, domain))
    return result if outgrown else None


# -- rungs -------------------------------------------------------------------------------------------------


def _rungs(
    stacked: Sequence[tuple[_ArenaBuffers, SearchResult]],
    arenas: Sequence[Arena],
    storages: Sequence[Arena],
    domain: Domain,
) -> tuple[Rung, ...]:
    """Return the rungs that arenas and storages were made on, each with the worst ratio of any of them."""
    worst: dict[RungKind, float] = {}
    for (group, result), arena in zip(stacked, arenas, strict=True):
        taken: list[RungKind] = []
        taken += ["search"] if result.score.worst > PERFECT else []
        taken += ["bounds"] if arena.raised else []
        ratio = (
            max(worst_ratio(group.live, arena.size, domain, group.names), result.score.worst)
            if taken
            else 1.0
        )
        worst.update({kind: max(ratio, worst.get(kind, 1.0)) for kind in taken})
    for one in (one for one in storages if one.raised):
        group = _ArenaBuffers([p.buffer for p in one.placements])
        ratio = worst_ratio(group.live, one.size, domain, group.names)
        worst["bounds"] = max(ratio, worst.get("bounds", 1.0))
    return tuple(Rung(kind=kind, reason=_REASONS[kind], ratio=ratio) for kind, ratio in worst.items())


# -- what goes together ------------------------------------------------------------------------------------


def _by_arena(buffers: Iterable[Buffer], *, apart: bool) -> list[list[Buffer]]:
    """Group the buffers that share an arena; with `apart` those of constant size have one of their own."""
    groups: dict[tuple[int, str, int, bool], list[Buffer]] = {}
    for buffer in buffers:
        fixed = apart and buffer.size.as_constant is not None
        groups.setdefault((buffer.device, buffer.scope, buffer.arena, fixed), []).append(buffer)
    return list(groups.values())


def _ranges(function: Function, buffers: Sequence[Buffer]) -> Ranges:
    """Return the declared bounds of the symbols that buffers are sized by; extents may be 0 where none is."""
    names = _ArenaBuffers(buffers).names
    lower, upper = function.declared_lower, function.declared_upper
    return {name: (lower.get(name, 0), upper.get(name)) for name in names}
