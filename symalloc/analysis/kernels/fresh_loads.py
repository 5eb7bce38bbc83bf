"""Loads of a kernel that find what none of its stores has left there before, element by element and in time.

A store comes before a load in an earlier pass of a loop around both, or where it stands before it in the same
pass.  Passes that run side by side see nothing of each other, but lanes of vectors, and threads in memory
that they share, go through the body statement by statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from math import lcm
from typing import NamedTuple, TypeAlias

from symalloc.analysis.kernels.index_bounds import is_plain
from symalloc.analysis.kernels.solution import Solution
from symalloc.program.ir import KernelAccess, KernelBuffer, KernelLoop
from symalloc.size.condition import TRUE, Condition, conjunction, ge, le, lt, negate
from symalloc.size.expr import Expr, constant, floordiv, symbol

Possible: TypeAlias = Callable[[Sequence[Condition]], bool | None]
"""Return whether conditions on sizes and counters can hold together; None where that is not decided."""
_MOST_PAIRS = 512
"""Pairs of a load and a store of one buffer that are looked at."""
_MOST_QUESTIONS = 8
"""Questions that are asked about the loads of one buffer."""


class FreshLoads(NamedTuple):
    """The loads, each as far as it is one, and others that `perhaps` are; `undecided` where it is not known
    of one although nothing hangs on data.
    """

    loads: tuple[KernelAccess, ...]
    perhaps: tuple[KernelAccess, ...] = ()
    undecided: bool = False


class _Before(NamedTuple):
    """The condition that a store comes before a load at the same place; `sure` unless that needs more."""

    condition: Condition
    sure: bool


def fresh_loads(
    accesses: Sequence[KernelAccess],
    buffer: KernelBuffer,
    scalars: frozenset[str],
    possible: Possible,
) -> FreshLoads:
    """The fresh ones of the loads among `accesses`, which are those of `buffer` in order.

    Where it hangs on data what a store writes, it counts as one of what the load finds.
    """
    stores = [(number, one) for number, one in enumerate(accesses) if one.kind == "store"]
    # what is handed on may be loaded, stored, or both
    handed = {number for number, one in stores if one.handed}
    kept = (one for one in enumerate(accesses) if not (one[1].handed and one[0] + 1 in handed))
    loads = _first_of_equal((number, one) for number, one in kept if one.kind == "load")
    stores = _first_of_equal(stores)
    if not stores:
        return FreshLoads(tuple(_inside(load, buffer, scalars) for _, load in loads))
    if len(stores) * len(loads) > _MOST_PAIRS or buffer.shape is None:
        first = stores[0][0]
        early = tuple(load for number, load in loads if number < first and not load.loops)
        late = tuple(load for _, load in loads if load not in early)
        return FreshLoads(early, late, buffer.shape is not None and bool(late))
    parts = lcm(*(access.part[1] for access in accesses if access.part is not None))
    search = _FreshSearch(buffer, scalars, possible, parts)
    return search.among(loads, stores)


def _inside(load: KernelAccess, buffer: KernelBuffer, scalars: frozenset[str]) -> KernelAccess:
    """The load as far as it is in its buffer: what lies outside is none of the buffer's content."""
    known = (
        (i, extent) for i, extent in zip(load.indices, buffer.shape or (), strict=False) if i is not None
    )
    inside = (c for index, extent in known for c in (ge(index, 0), lt(index, extent)))
    more = tuple(c for c in inside if not is_plain(c, load.domain, scalars))
    return replace(load, domain=(*load.domain, *more)) if more else load


def _first_of_equal(accesses: Iterable[tuple[int, KernelAccess]]) -> list[tuple[int, KernelAccess]]:
    """The first of numbered accesses that are equal: no later load finds less written, and no
    later store comes before another load.
    """
    numbers = dict[KernelAccess, int]()
    for number, one in accesses:
        numbers.setdefault(one, number)
    return [(number, one) for one, number in numbers.items()]


@dataclass(slots=True)
class _FreshSearch:
    """Looks for the stores before loads of one buffer, each element of which counts as `parts`."""

    buffer: KernelBuffer
    scalars: frozenset[str]
    possible: Possible
    parts: int
    questions: int = 0

    def among(
        self, loads: Sequence[tuple[int, KernelAccess]], stores: Sequence[tuple[int, KernelAccess]]
    ) -> FreshLoads:
        """The fresh ones of numbered loads."""
        found, perhaps, undecided = list[KernelAccess](), list[KernelAccess](), False
        for number, load in loads:
            order = sorted(stores, key=lambda store: (store[0] > number, -store[0]))
            unread = load.unread or any(store.unread for _, store in stores)
            fresh = self.fresh(load, [(store, first < number) for first, store in order])
            if fresh is None:
                known = (one.exact and None not in one.indices for one in (load, *(s for _, s in stores)))
                undecided |= unread or all(known)
                perhaps.append(load)
            found += fresh or ()
        return FreshLoads(tuple(found), tuple(perhaps), undecided)

    def fresh(
        self, load: KernelAccess, stores: Sequence[tuple[KernelAccess, bool]]
    ) -> tuple[KernelAccess, ...] | None:
        """The load as far as no store comes before it; none where some always does, None if undecided."""
        unit, named = self.named(load)
        before: list[_Before] = []
        doubtful = not load.exact or None in load.indices
        for store, first in stores:
            vague = not store.exact or store.handed or None in store.indices
            for one in () if before and doubtful and vague else self.before(unit, store, first):
                left = [c for c in one.condition.conjuncts if not is_plain(c, unit.domain, self.scalars)]
                if one.sure and not left:
                    return ()
                before.append(_Before(conjunction(left), one.sure))
        if any(condition.as_bool is False for condition in unit.domain):
            return ()
        if not before and None in load.indices:
            return (load,)
        sure, every = ([negate(b.condition) for b in before if b.sure or racy] for racy in (False, True))
        if before and self.asked((*unit.domain, *sure)) is False:
            return ()
        if before and (doubtful or self.asked((*unit.domain, *every)) is not True):
            return None
        back = {name: symbol(old) for old, name in named.items()}
        more = tuple(chain.from_iterable(c.substitute(back).conjuncts for c in dict.fromkeys(every)))
        loops = (*load.loops, *unit.loops[len(load.loops) :])
        return (replace(load, domain=(*unit.substitute(back).domain, *more), loops=loops),)

    def asked(self, conditions: Sequence[Condition]) -> bool | None:
        self.questions += 1
        return None if self.questions > _MOST_QUESTIONS else self.possible(conditions)

    def named(self, load: KernelAccess) -> tuple[KernelAccess, dict[str, str]]:
        """The load at one part of an element, its counters named apart from those of stores, and these names.

        Indices that are not known count as loops.
        """
        named = {loop.symbol: f"{loop.symbol}'2" for loop in load.loops}
        unit = load.substitute({old: symbol(name) for old, name in named.items()})
        of = 1 if load.part is None else load.part[1]
        extra = [("part'", constant(self.parts // of))] if self.parts > of else []
        axes = zip(load.indices, self.buffer.shape or (), strict=False)
        extra += [(f"any{axis}'", extent) for axis, (i, extent) in enumerate(axes) if i is None]
        inside = [c for name, extent in extra for c in (ge(symbol(name), 0), lt(symbol(name), extent))]
        lane = symbol("part'") if self.parts > of else constant(0)
        part = lane if unit.part is None else unit.part[0] * (self.parts // of) + lane
        indices = tuple(symbol(f"any{axis}'") if i is None else i for axis, i in enumerate(unit.indices))
        loops = (*load.loops, *(KernelLoop(symbol=name, passes=extent) for name, extent in extra))
        domain = (*unit.domain, *(c for c in inside if not is_plain(c, unit.domain, self.scalars)))
        unit = replace(unit, indices=indices, domain=domain, loops=loops, part=(part, self.parts))
        return _inside(unit, self.buffer, self.scalars), named

    # -- a load and a store --------------------------------------------------------------------------------

    def before(self, load: KernelAccess, store: KernelAccess, first: bool) -> Iterator[_Before]:
        """The ways in which a store may come before a load; it stands `first` within one pass."""
        assert load.part is not None
        pairs = zip(store.indices, load.indices, strict=True)
        place = [(a, b) for a, b in pairs if a is not None and b is not None]
        if store.part is not None:
            place.append((store.part[0], floordiv(load.part[0], self.parts // store.part[1])))
        known = None not in store.indices
        for alike, order, sure in self.orders(load, store, first):
            asked = replace(store, domain=(*store.domain, *order.conjuncts))
            held, runs, exact = Solution(asked, (*alike, *place), self.scalars).held()
            condition = conjunction((*held, *runs))
            if condition.as_bool is not False:
                yield _Before(condition, exact and known and sure and not store.handed)

    def orders(
        self, load: KernelAccess, store: KernelAccess, first: bool
    ) -> Iterator[tuple[list[tuple[Expr, Expr]], Condition, bool]]:
        """The orders of passes in which a store comes before a load: the counters that are equal, what holds
        besides, and whether it surely does then.
        """
        pairs = zip(store.loops, load.loops, strict=False)
        shared = [loop for loop, _ in takewhile(lambda pair: pair[0].symbol == pair[1].symbol, pairs)]
        ordered = [loop for loop in shared if not (loop.lanes or (loop.parallel and self.buffer.shared))]
        both = [(symbol(loop.symbol), symbol(f"{loop.symbol}'2")) for loop in ordered]
        fixed = sum(loop in ordered for loop in shared[: self.buffer.loops])
        if first and len(ordered) > fixed and not ordered[-1].parallel:
            yield both[:-1], le(*both[-1]), True
            both, ordered = both[:-1], ordered[:-1]
        elif first:
            yield both, TRUE, True
        for depth in reversed(range(fixed, len(ordered))):
            if not ordered[depth].parallel:
                yield both[:depth], lt(*both[depth]), True
        if any(loop.parallel for loop in ordered):  # passes side by side: perhaps
            yield [], TRUE, False
