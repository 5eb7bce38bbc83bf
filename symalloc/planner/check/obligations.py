"""The proof obligations of a plan, read off the plan alone, by code of its own.

Every obligation is "one of these inequalities holds".  Buffers of equal offset, size and alignment form a
class, and an obligation is stated once for all that it speaks of: layers repeat, so a model of hundreds of
buffers has a few dozen.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, product
from typing import NamedTuple

from symalloc.planner.memory_plan import Arena, Buffer, Placement
from symalloc.program.ir import Var
from symalloc.program.types import record
from symalloc.prover.domain import INT64_MAX, INT64_MIN
from symalloc.size.choice import with_inner
from symalloc.size.condition import Condition, disjunction, le
from symalloc.size.expr import ONE, ZERO, Expr, constant, evaluated

Numbers = tuple[int, ...]
Side = tuple[Expr, Expr]

_LEAST, _GREATEST = constant(INT64_MIN), constant(INT64_MAX)


@record(kw_only=False)
class Obligation:
    """At every binding `low <= high` holds for one of `sides`; otherwise the plan has `problem`.

    The `text` of the problem has a `{}` for the expression that it is `about`, which may be long.  `where`
    lists what it speaks of, by number: one placement, a pair, or `()` for the arena.  A `guarded` one need
    hold only where the guards do that stand before the arena is reserved, at entry or behind `defined_by`.
    `kind` is a word for a file name.
    """

    kind: str
    text: str
    where: tuple[Numbers, ...]
    sides: tuple[Side, ...]
    about: Expr | None = None
    guarded: bool = False
    defined_by: Var | None = None

    @property
    def problem(self) -> str:
        """The words for what is wrong where the obligation does not hold."""
        return self.text if self.about is None else self.text.format(self.about)

    @property
    def value(self) -> Expr | None:
        """The value that one is about which is about no buffer."""
        ((low, high), *_) = self.sides
        return None if self.where[0] else low if self.kind == "most" else high

    @property
    def claim(self) -> Condition:
        """The obligation as one condition."""
        return disjunction(le(low, high) for low, high in self.sides)


class _PlacementClass(NamedTuple):
    """The properties of a placement that its obligations depend on."""

    offset: Expr
    size: Expr
    nbytes: Expr
    alignment: int


@dataclass(slots=True)
class ArenaObligations:
    """The obligations of one arena; `kinds` are the classes of its placements, `index` numbers them.

    Invariant: placements of equal numbers have equal obligations.
    """

    arena: Arena
    kinds: list[_PlacementClass] = field(init=False)
    index: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        numbers: dict[_PlacementClass, int] = {}
        for p in self.arena.placements:
            kind = _PlacementClass(p.offset, p.buffer.size, p.buffer.nbytes, p.buffer.alignment)
            self.index.append(numbers.setdefault(kind, len(numbers)))
        self.kinds = list(numbers)

    def of_each(
        self, *, machine: bool = True, fits: Callable[[Expr], bool] = lambda _: False
    ) -> Iterator[Obligation]:
        """Yield what makes the placements right, each by itself: inside, aligned, nothing past 64 bits.

        What `fits` in 64 bits, with every sum of its terms, needs no obligation for that.  Without `machine`
        the plan is one over the integers: whether 64 bits hold its values is not asked.
        """
        members: list[list[Numbers]] = [[] for _ in self.kinds]
        for index, number in enumerate(self.index):
            members[number].append((index,))
        for kind, names in zip(self.kinds, members, strict=True):
            yield from _of_class(kind, self.arena.size, tuple(names))
        yield from self._machine(fits if machine else None)

    def all_apart(self) -> Iterator[Obligation]:
        """Yield that any two buffers that are live together are apart."""
        met = _live_together([p.buffer for p in self.arena.placements])
        for pair, where in self._pairs(met, ordered=False):
            left, right = (self.kinds[number] for number in pair)
            yield _apart(where, ((left, right), (right, left)), (left.size, right.size))

    def piled_up(self) -> Iterator[Obligation]:
        """Yield that each buffer ends below what lies directly on it: all are apart where this holds, and no
        size is negative.
        """
        for pair, where in self._pairs(directly_above(self.arena.placements), ordered=True):
            left, right = (self.kinds[number] for number in pair)
            yield _apart(where, ((left, right),))

    def _pairs(
        self, pairs: Iterable[tuple[int, int]], *, ordered: bool
    ) -> Iterator[tuple[tuple[int, int], tuple[Numbers, ...]]]:
        """Yield the classes of `pairs` of placements, by number, each pair of classes once with all pairs.

        Classes are `ordered` as the placements of a pair are, or else by their first ones.
        """
        met: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for pair in pairs:
            first, second = self.index[pair[0]], self.index[pair[1]]
            kept = ordered or first <= second
            met.setdefault((first, second) if kept else (second, first), []).append(
                pair if kept else pair[::-1]
            )
        for classes, found in met.items():
            yield classes, tuple(found)

    def _machine(self, fits: Callable[[Expr], bool] | None) -> Iterator[Obligation]:
        """Yield that no value leaves 64 bits, unless `fits` is None, and that no divisor is less than 1."""
        every = with_inner([self.arena.size, *(kind.offset for kind in self.kinds)])
        open_ones = [] if fits is None else [value for value in every if not fits(value)]
        for whole, side in dict.fromkeys((value, side) for value in open_ones for side in _limits(value)):
            yield Obligation(
                kind="most" if side[1] is _GREATEST else "least",
                text="`{}` can leave 64 bits",
                about=whole,
                where=((),),
                sides=(side,),
                guarded=True,
                defined_by=self.arena.defined_by,
            )
        divisors = (atom.divisor for value in every for atom in value.atoms if atom.divisor is not None)
        for divisor in dict.fromkeys(d for d in divisors if (d.as_constant or 0) < 1):
            text = "it divides by `{}`, which may be less than 1"
            yield Obligation(kind="divisor", text=text, about=divisor, where=((),), sides=((ONE, divisor),))


def _of_class(kind: _PlacementClass, arena: Expr, where: tuple[Numbers, ...]) -> Iterator[Obligation]:
    offset, size, step = kind.offset, kind.size, kind.alignment

    def obligation(word: str, text: str, low: Expr, high: Expr) -> Obligation:
        return Obligation(word, text, where, ((low, high),))

    yield obligation("start", "it starts before its arena", ZERO, offset)
    yield obligation("aligned", f"its offset is no multiple of {step}", offset % step, ZERO)
    yield obligation("holds", "it holds more bytes than are set aside", kind.nbytes, size)
    yield obligation("size", "its size can be negative", ZERO, size)
    yield obligation("inside", "it ends behind its arena", offset + size, arena)


def _apart(
    where: tuple[Numbers, ...],
    orders: Iterable[tuple[_PlacementClass, _PlacementClass]],
    empty: Iterable[Expr] = (),
) -> Obligation:
    """Two that are live together: the first of one of `orders` ends where the second begins or before, or one
    of the sizes `empty` is zero.
    """
    sides = [(low.offset + low.size, high.offset) for low, high in orders]
    return Obligation(
        kind="apart",
        text="they overlap while both are live",
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
            spans = product(buffers[left].live, buffers[right].live)
            if any(max(a, c) < min(b, d) for (a, b), (c, d) in spans):
                yield left, right


# -- 64 bits -----------------------------------------------------------------------------------------------


def _limits(value: Expr) -> Iterator[Side]:
    """Yield that the value fits, and so do the sum of its positive and that of its negative terms."""
    up = Expr({m: c for m, c in value.terms.items() if c > 0})
    down = Expr({m: c for m, c in value.terms.items() if c < 0})
    for part in (up, down, value) if up.terms and down.terms else (value,):
        yield part, _GREATEST
        yield _LEAST, part


# -- pairs of buffers from which it follows that all are apart ---------------------------------------------
# At every position the buffers that are live are put in the order in which they lie at a few bindings.
# Where each ends at the start of the next one or before, and no size is negative, each ends before all that
# follow.  So there are a few pairs for each buffer, whatever is live together.  Another order at another
# binding is possible: then this proves nothing, and all pairs are to be asked about.

EXTENTS = (64, 5000, 1)


def directly_above(placements: Sequence[Placement]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of indices (lower, upper), each once, that are live at one position at which nothing
    lies between them.
    """
    order = _from_below(placements)
    events: dict[int, tuple[list[int], list[int]]] = {}
    for number, index in enumerate(order):
        for begin, end in placements[index].buffer.live:
            if begin < end:
                events.setdefault(begin, ([], []))[0].append(number)
                events.setdefault(end, ([], []))[1].append(number)
    seen: set[tuple[int, int]] = set()
    pile: list[int] = []
    for position in sorted(events):
        begins, ends = events[position]
        for number in ends:
            del pile[bisect_left(pile, number)]
        for number in begins:
            insort(pile, number)
        for number in (*ends, *begins):
            here = bisect_left(pile, number)
            seen.update(pairwise(pile[max(here - 1, 0) : here + 2]))
    yield from ((order[low], order[high]) for low, high in sorted(seen))


def _from_below(placements: Sequence[Placement]) -> list[int]:
    """The indices by where each starts and ends at a few bindings; what divides by zero there counts as 0."""
    names = frozenset().union(*(p.offset.symbols | p.buffer.size.symbols for p in placements))
    bindings = [dict.fromkeys(names, extent) for extent in EXTENTS]

    @cache
    def ends(offset: Expr, size: Expr) -> list[tuple[int, int]]:
        found = ((evaluated(offset, at) or 0, evaluated(size, at) or 0) for at in bindings)
        return [(start, start + nbytes) for start, nbytes in found]

    return sorted(range(len(placements)), key=lambda i: ends(placements[i].offset, placements[i].buffer.size))
