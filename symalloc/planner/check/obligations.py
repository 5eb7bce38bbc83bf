"""The proof obligations of a plan, read off the plan alone, by code of its own.

Every obligation is "one of these inequalities holds".  Buffers of equal offset, size and alignment form a
class, and an obligation is stated once for all that it speaks of: layers repeat, so a model of hundreds of
buffers has a few dozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from symalloc.planner.check.piles import directly_above
from symalloc.planner.memory_plan import Arena, Buffer, Placement, Plan
from symalloc.program.ir import Var
from symalloc.prover.domain import INT64_MAX, INT64_MIN
from symalloc.size.condition import Condition, disjunction, le
from symalloc.size.expr import ONE, ZERO, Expr, constant

Names = tuple[str, ...]
Side = tuple[Expr, Expr]

_LEAST, _GREATEST = constant(INT64_MIN), constant(INT64_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obligation:
    """At every binding `low <= high` holds for one of `sides`; otherwise the plan has `problem`.

    `where` lists what it speaks of: one buffer, a pair, or `()` for the arena.  A `guarded` one need hold
    only where the guards do that stand before the arena is reserved, at entry or behind `defined_by`.
    `kind` is a word for a file name.
    """

    kind: str
    problem: str
    where: tuple[Names, ...]
    sides: tuple[Side, ...]
    guarded: bool = False
    defined_by: Var | None = None

    @property
    def claim(self) -> Condition:
        """The obligation as one condition."""
        return disjunction(le(low, high) for low, high in self.sides)


@dataclass(frozen=True, slots=True)
class _PlacementClass:
    """The properties of a placement that its obligations depend on."""

    offset: Expr
    size: Expr
    nbytes: Expr
    alignment: int


def obligations(plan: Plan, *, machine: bool = True) -> Iterator[Obligation]:
    """Yield all that makes `plan` right, for every binding: disjoint, inside, aligned, nothing past 64 bits.

    Without `machine` the plan is one over the integers: whether 64 bits hold its values is not asked.
    """
    for arena in plan.arenas:
        yield from obligations_of_each(arena, machine=machine)
        yield from all_apart(arena)


def obligations_of_each(arena: Arena, *, machine: bool = True) -> Iterator[Obligation]:
    """Yield what makes the placements of `arena` right, each by itself."""
    classes = [_class_of(p) for p in arena.placements]
    yield from _alone(arena, classes)
    yield from (o for o in _machine(arena, classes) if machine or not o.guarded)


def all_apart(arena: Arena) -> Iterator[Obligation]:
    """Yield that any two buffers that are live together are apart."""
    met = _live_together([p.buffer for p in arena.placements])
    for left, right, where in _pairs(arena, met, ordered=False):
        yield _apart(where, ((left, right), (right, left)), (left.size, right.size))


def piled_up(arena: Arena) -> Iterator[Obligation]:
    """Yield that each buffer ends below what lies directly on it: all are apart where this holds, and no size
    is negative.
    """
    for left, right, where in _pairs(arena, directly_above(arena.placements), ordered=True):
        yield _apart(where, ((left, right),))


def _class_of(placement: Placement) -> _PlacementClass:
    buffer = placement.buffer
    return _PlacementClass(placement.offset, buffer.size, buffer.nbytes, buffer.alignment)


def _alone(arena: Arena, classes: Sequence[_PlacementClass]) -> Iterator[Obligation]:
    members: dict[_PlacementClass, list[Names]] = {}
    for placement, kind in zip(arena.placements, classes, strict=True):
        members.setdefault(kind, []).append((placement.buffer.name,))
    for kind, names in members.items():
        yield from _of_class(kind, arena.size, tuple(names))


def _of_class(kind: _PlacementClass, arena: Expr, where: tuple[Names, ...]) -> Iterator[Obligation]:
    offset, size, step = kind.offset, kind.size, kind.alignment

    def obligation(word: str, problem: str, low: Expr, high: Expr) -> Obligation:
        return Obligation(kind=word, problem=problem, where=where, sides=((low, high),))

    yield obligation("start", "it starts before its arena", ZERO, offset)
    yield obligation("aligned", f"its offset is no multiple of {step}", offset % step, ZERO)
    yield obligation("holds", "it holds more bytes than are set aside", kind.nbytes, size)
    yield obligation("size", "its size can be negative", ZERO, size)
    yield obligation("inside", "it ends behind its arena", offset + size, arena)


def _pairs(
    arena: Arena, pairs: Iterable[tuple[int, int]], *, ordered: bool
) -> Iterator[tuple[_PlacementClass, _PlacementClass, tuple[Names, ...]]]:
    """Yield the classes of `pairs` of placements, each pair of classes once with the names of all pairs.

    Classes are `ordered` as the placements of a pair are, or else by their first ones.
    """
    numbers: dict[_PlacementClass, int] = {}
    index = [numbers.setdefault(_class_of(p), len(numbers)) for p in arena.placements]
    met: dict[tuple[int, int], list[Names]] = {}
    for left, right in pairs:
        names = (arena.placements[left].buffer.name, arena.placements[right].buffer.name)
        first, second = index[left], index[right]
        met.setdefault((first, second) if ordered or first < second else (second, first), []).append(names)
    kinds = list(numbers)
    yield from ((kinds[left], kinds[right], tuple(where)) for (left, right), where in met.items())


def _apart(
    where: tuple[Names, ...],
    orders: Iterable[tuple[_PlacementClass, _PlacementClass]],
    empty: Iterable[Expr] = (),
) -> Obligation:
    """Two that are live together: the first of one of `orders` ends where the second begins or before, or one
    of the sizes `empty` is zero.
    """
    sides = [(low.offset + low.size, high.offset) for low, high in orders]
    return Obligation(
        kind="apart",
        problem="they overlap while both are live",
        where=where,
        sides=(*sides, *((size, ZERO) for size in empty)),
    )


def _live_together(buffers: Sequence[Buffer]) -> Iterator[tuple[int, int]]:
    """The pairs of indices that are live together: first by the first position of the one, then by index."""
    hulls = sorted(
        (min(begin for begin, _ in b.live), max(end for _, end in b.live), i)
        for i, b in enumerate(buffers)
        if b.live
    )
    for position, (_, end, left) in enumerate(hulls):
        for start, _, right in hulls[position + 1 :]:
            if start >= end:
                break
            if _together(buffers[left], buffers[right]):
                yield left, right


def _together(left: Buffer, right: Buffer) -> bool:
    """Return whether some interval of one meets some interval of the other."""
    return any(max(a, c) < min(b, d) for a, b in left.live for c, d in right.live)


# -- 64 bits -----------------------------------------------------------------------------------------------


def _machine(arena: Arena, classes: Sequence[_PlacementClass]) -> Iterator[Obligation]:
    values = dict.fromkeys([arena.size, *(kind.offset for kind in classes)])
    every = _with_inner(values)
    for whole, side in dict.fromkeys((value, side) for value in every for side in _limits(value)):
        problem = f"`{whole}` can leave 64 bits"
        yield Obligation(
            kind="range",
            problem=problem,
            where=((),),
            sides=(side,),
            guarded=True,
            defined_by=arena.defined_by,
        )
    for divisor in dict.fromkeys(d for value in every for d in _divisors(value)):
        problem = f"it divides by `{divisor}`, which may be less than 1"
        yield Obligation(kind="divisor", problem=problem, where=((),), sides=((ONE, divisor),))


def _limits(value: Expr) -> Iterator[Side]:
    """Yield that the value fits, and so do the sum of its positive and that of its negative terms."""
    up = Expr({m: c for m, c in value.terms.items() if c > 0})
    down = Expr({m: c for m, c in value.terms.items() if c < 0})
    for part in (up, down, value) if up.terms and down.terms else (value,):
        yield part, _GREATEST
        yield _LEAST, part


def _divisors(value: Expr) -> Iterator[Expr]:
    for atom in value.atoms:
        if atom.divisor is not None and (atom.divisor.as_constant or 0) < 1:
            yield atom.divisor


def _with_inner(values: Iterable[Expr]) -> list[Expr]:
    """`values` and the expressions inside their atoms, at every depth, each once."""
    found = dict.fromkeys(values)
    pending = list(found)
    for value in pending:  # which grows as it is walked
        for atom in value.atoms:
            for operand in atom.operands:
                if operand not in found:
                    found[operand] = None
                    pending.append(operand)
    return pending
