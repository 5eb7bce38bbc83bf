"""Coverage of kernels: the elements of a parameter that one surely reads as it finds them, or may write.

A load counts where no store to the parameter comes before it at the same place: `a[i] = a[i] + 1` reads what
was there, a sum that is set to 0 first does not.  Stores count for all that they may reach; what is not
understood may be all.  So an element counts as read only where it is, as not written only where it is not.

A store comes before a load in an earlier pass of a loop around both, or where it stands before it in the same
pass.  Passes that run side by side see nothing of each other, but lanes of vectors, and threads in memory
that they share, go through the body statement by statement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, takewhile
from math import lcm
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from symalloc.analysis.kernels.index_bounds import bounds_of, is_plain, scalars_of
from symalloc.analysis.kernels.solution import Solution, in_rows
from symalloc.program import ir
from symalloc.program.ir import KernelAccess, KernelBuffer, KernelLoop
from symalloc.size.choice import maximum, minimum, undominated
from symalloc.size.condition import TRUE, Condition, conjunction, disjunction, ge, le, lt, negate
from symalloc.size.expr import ZERO, Expr, computed_once, constant, floordiv, symbol


class Range(NamedTuple):
    """The numbers from `begin` up to `end`, which is not one of them, where `condition` holds."""

    begin: Expr
    end: Expr
    condition: Condition = TRUE


class Passes(NamedTuple):
    """The passes of a kernel's loops at which a constraint is asked: those where `conditions` hold.

    `counters` are symbols that count passes, each >= 0, with the number of passes where that is known; a
    fault at one pass is a fault, unless it is not `certain` that each of them is executed.
    """

    conditions: tuple[Condition, ...] = ()
    counters: tuple[tuple[str, Expr | None], ...] = ()
    certain: bool = True


class Points(NamedTuple):
    """The passes of the loops around a load at which it finds what its kernel has not stored: those where
    `conditions` hold, over `counters`, each with the number of passes.  It is at `indices` there.
    """

    indices: tuple[Expr, ...]
    conditions: tuple[Condition, ...]
    counters: tuple[tuple[str, Expr | None], ...]

    def substitute(self, values: Mapping[str, Expr]) -> Points:
        """The passes with symbols replaced."""
        counters = tuple(
            (name, None if last is None else last.substitute(values)) for name, last in self.counters
        )
        indices = tuple(index.substitute(values) for index in self.indices)
        return Points(indices, tuple(c.substitute(values) for c in self.conditions), counters)

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that are no counters."""
        ends = (last for _, last in self.counters if last is not None)
        spoken: tuple[Expr | Condition, ...] = (*self.indices, *self.conditions, *ends)
        return frozenset[str]().union(*(one.symbols for one in spoken)) - {name for name, _ in self.counters}


class Elements(NamedTuple):
    """A box of elements of a parameter, over the symbols of the kernel, where all `guards` hold.

    `ranges` holds an entry for each dimension: None for all of it.  `runs` hold where loops that do not count
    elements of it (those of a sum) are run at all.  `exact`: these elements and no others; otherwise some of
    them.  `where` holds at each of them, over `element_index` of each dimension, where they are no box.
    `by_data`: which of those they are hangs on the elements of a buffer.  `points` tell of what is read where
    that is no box.
    """

    ranges: tuple[Range | None, ...]
    guards: tuple[Condition, ...] = ()
    runs: tuple[Condition, ...] = ()
    exact: bool = True
    where: Condition = TRUE
    by_data: bool = False
    points: Points | None = None

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions on sizes under which there are any."""
        return (*self.guards, *self.runs)

    @property
    def is_whole(self) -> bool:
        """True if it is all of the parameter, whatever the shapes."""
        return not self.conditions and not any(self.ranges) and not self.is_scattered

    @property
    def is_scattered(self) -> bool:
        """True if they are no box."""
        return self.by_data or self.where.as_bool is not True

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols of all bounds and conditions."""
        more = frozenset[str]() if self.points is None else self.points.symbols
        axes = {element_index(axis).as_symbol for axis in range(len(self.ranges))}
        return (self.condition.symbols - axes) | more

    @property
    def condition(self) -> Condition:
        """The condition that an element of the parameter is one of these, over `element_index`."""
        parts = [(element_index(axis), found) for axis, found in enumerate(self.ranges) if found is not None]
        inside = [c for index, part in parts for c in (le(part.begin, index), lt(index, part.end))]
        return conjunction((*self.conditions, *inside, self.where))

    def substitute(self, values: Mapping[str, Expr]) -> Elements:
        """The elements with symbols replaced."""
        ranges = (r and Range(r.begin.substitute(values), r.end.substitute(values)) for r in self.ranges)
        guards = tuple(c.substitute(values) for c in self.guards)
        runs = tuple(c.substitute(values) for c in self.runs)
        where = self.where.substitute(values)
        points = self.points and self.points.substitute(values)
        return self._replace(ranges=tuple(ranges), guards=guards, runs=runs, where=where, points=points)


UNKNOWN_ELEMENTS = Elements((), exact=False)
"""Any elements of a parameter, or none."""

_MOST_READS = 4
"""The number of boxes that are kept of what a kernel reads of one parameter."""


class ParameterCoverage:
    """The content of one parameter that a kernel needs, and what it writes, each found when it is asked for.

    `known` unless the body of the kernel is elsewhere.  `reached` gives the elements of an access (see
    `accessed_elements`), `find` its fresh loads.
    """

    def __init__(
        self,
        parameter: ir.KernelBuffer,
        accesses: Sequence[KernelAccess],
        reached: Callable[..., Elements],
        find: Callable[[Sequence[KernelAccess], ir.KernelBuffer], FreshLoads],
        *,
        known: bool,
    ) -> None:
        self.parameter, self.accesses, self.reached, self.known = parameter, accesses, reached, known
        self.find = find

    @computed_once
    def fresh(self) -> FreshLoads:
        """The loads of what no store has written."""
        return self.find(self.accesses, self.parameter)

    @computed_once
    def needed(self) -> Sequence[KernelAccess]:
        """The loads of what no store has written; those that may be left out only where all may be."""
        return [load for load in self.fresh.loads if load.exact] or self.fresh.loads

    @computed_once
    def surely(self) -> bool:
        """True if some of it is read, whatever the data."""
        return any(load.exact for load in self.needed)

    @computed_once
    def reads(self) -> tuple[Elements, ...]:
        """The boxes that are read, exactly or in part."""
        boxes = dict.fromkeys(map(self._box, self.needed))
        reads = tuple(sorted(boxes, key=lambda box: not (box.is_whole and box.exact)))[:_MOST_READS]
        return reads[:1] if reads and reads[0].is_whole and reads[0].exact else reads

    @computed_once
    def writes(self) -> tuple[Elements, ...]:
        """Elements that hold all that it may write; exact where it surely writes them."""
        if self.parameter.must_def:
            return (self._whole,)
        stores = self._of_kind("store")
        if not stores and (self.known or not self.parameter.writes):
            return ()
        return self._any_of(stores)

    @computed_once
    def fills(self) -> bool:
        """True if it may write all of what it is given, whatever that is."""
        return any(box.is_whole and box.points is None for box in self.writes)

    @property
    def _whole(self) -> Elements:
        return Elements((None,) * len(self.parameter.shape or ()))

    @computed_once
    def unsure(self) -> bool:
        """True if it is not told exactly what is stored, although that hangs on no data."""
        if not self.known or self.parameter.must_def:
            return False
        stores = [store for store in self._of_kind("store") if store.exact and None not in store.indices]
        return bool(stores) and not all(box.exact for box in self._any_of(stores))

    @computed_once
    def loads(self) -> tuple[Elements, ...]:
        """Elements that hold all that it may read as it finds them; exact where it surely does."""
        if not self.known and self.parameter.dtype is not None:
            return (self._whole,) if self.parameter.reads else ()
        if not self.known or any(access.handed for access in self.accesses):
            return (UNKNOWN_ELEMENTS,)
        sure = dict.fromkeys(self._box(one) for one in self.fresh.loads if None not in one.indices)
        vague = (*(one for one in self.fresh.loads if None in one.indices), *self.fresh.perhaps)
        others = self._any_of(vague) if vague else ()
        return (*sure, *(box._replace(exact=False) for box in others if box not in sure))

    def _box(self, load: KernelAccess) -> Elements:
        """The elements of a load, with its passes where they are no box: those inside of the buffer."""
        box, shape = self.reached(load, self.parameter.shape), self.parameter.shape or ()
        if box.exact or not load.exact:
            return box
        pairs = ((i, extent) for i, extent in zip(load.indices, shape, strict=False) if i is not None)
        inside = dict.fromkeys(c for i, extent in pairs for c in (ge(i, 0), lt(i, extent)))
        domain = (*load.domain, *(c for c in inside if c.as_bool is not True and c not in load.domain))
        return box._replace(points=points_of(replace(load, domain=domain)))

    def _of_kind(self, kind: str) -> list[KernelAccess]:
        return [access for access in self.accesses if access.kind == kind]

    def _any_of(self, accesses: Sequence[KernelAccess]) -> tuple[Elements, ...]:
        """The elements that accesses may reach; where one reaches all there is no other."""
        vague = any(a.handed or (a.unread and (not a.exact or None in a.indices)) for a in accesses)
        if self.parameter.shape is None or not accesses or vague:
            return (UNKNOWN_ELEMENTS,)
        split = [a for a in accesses if a.part is not None and a.kind == "store"]
        found: dict[Elements, None] = {}
        for access in (one for one in accesses if one not in split):
            box = self.reached(access, self.parameter.shape)
            if box.is_whole and box.exact:
                return (box,)
            found[box] = None
        if split:
            found[self._in_all_parts(split)] = None
        whole = sorted((one for one in found if one.is_whole), key=lambda one: not one.exact)
        return tuple(whole[:1]) or tuple(found)

    def _in_all_parts(self, stores: Sequence[KernelAccess]) -> Elements:
        """The elements that stores to parts of them reach in every part."""
        count = lcm(*(store.part[1] for store in stores if store.part is not None))
        numbers, shape = range(count), self.parameter.shape
        boxes = [[self.reached(store, shape, part=(n, count)) for store in stores] for n in numbers]
        where = conjunction(disjunction(box.condition for box in one) for one in boxes)
        exact = all(box.exact for one in boxes for box in one)
        by_data = any(box.by_data for box in boxes[0])
        return Elements((None,) * len(boxes[0][0].ranges), exact=exact, where=where, by_data=by_data)


def points_of(load: KernelAccess) -> Points | None:
    """The passes of a load; None where one of its indices is not known."""
    known = tuple(index for index in load.indices if index is not None)
    named = {loop.symbol: symbol(f"{loop.symbol}'1") for loop in load.loops}
    counters = ((named[loop.symbol].as_symbol or "", loop.passes) for loop in load.loops)
    found = Points(known, load.domain, tuple(counters)).substitute(named)
    return found if len(known) == len(load.indices) else None


Told = TypeVar("Told")
KernelCoverage: TypeAlias = Mapping[int, ParameterCoverage]
Decide: TypeAlias = Callable[[ir.Kernel, Sequence[Condition]], bool | None]
"""Return whether conditions on the sizes and counters of a kernel can hold together; None if undecided."""


def kernel_coverage(kernel: ir.Kernel, decide: Decide = lambda _, __: None) -> KernelCoverage:
    """The coverage of each buffer parameter of a kernel by its position, and of the buffers of its own, which
    are numbered behind.

    A kernel that stores nothing stands for one whose body is elsewhere: nothing is known of it.
    """
    known = any(access.kind == "store" for access in kernel.accesses)
    scalars = scalars_of(kernel)
    own: defaultdict[int, list[KernelAccess]] = defaultdict(list)
    for access in kernel.accesses:
        if known or access.parameter >= len(kernel.parameters):
            own[access.parameter].append(in_rows(access, scalars))
    reached = cache(partial(accessed_elements, scalars=scalars))
    find = partial(fresh_loads, scalars=scalars, possible=partial(decide, kernel))
    return {
        position: ParameterCoverage(parameter, own[position], reached, find, known=known)
        for position, parameter in enumerate((*kernel.parameters, *kernel.own_buffers))
        if isinstance(parameter, ir.KernelBuffer)
    }


class KernelTable(Generic[Told]):
    """All that `find` tells of kernels; each is looked at once, and an equal one of its name is the same."""

    def __init__(self, find: Callable[[ir.Kernel], Told]) -> None:
        self._find, self._known = find, dict[str, tuple[ir.Kernel, Told]]()

    def of(self, kernel: ir.Kernel) -> Told:
        """Return what is told of a kernel."""
        known = self._known.get(kernel.name)
        if known is None or known[0] is not kernel:
            told = known[1] if known is not None and known[0] == kernel else self._find(kernel)
            known = self._known[kernel.name] = kernel, told
        return known[1]


# -- the elements that an access reaches -------------------------------------------------------------------


def element_index(axis: int) -> Expr:
    """Index number `axis` of an element; no symbol of a program has such a name."""
    return symbol(f"i{axis}'")


def accessed_elements(
    access: KernelAccess,
    shape: Sequence[Expr] | None,
    scalars: frozenset[str],
    part: tuple[int, int] = (0, 1),
) -> Elements:
    """The elements of a buffer of `shape` that an access reaches, or, if not exact, some that hold them all.

    Those of a load are always a box.  The symbols `scalars` may be negative.  `part`: those of which it is at
    this part, of so many.
    """
    if shape is None or len(shape) != len(access.indices):
        return Elements((), exact=False)
    indices = [element_index(axis) for axis in range(len(shape))]
    equations = [(index, e) for index, e in zip(access.indices, indices, strict=True) if index is not None]
    if access.part is not None and part[1] > 1:
        equations.append((access.part[0], constant(part[0] // (part[1] // access.part[1]))))
    held, runs, exact = Solution(access, equations, scalars).held()
    inside = [lt(index, extent) for index, extent in zip(indices, shape, strict=True)]
    names = frozenset[str]().union(*(index.symbols for index in indices))
    held += (c for c in runs if c.symbols & names)
    told = [c for c in dict.fromkeys(held) if not is_plain(c, inside, scalars)]
    idle = tuple(c for c in runs if not c.symbols & names and not is_plain(c, inside, scalars))
    bounds = {c: bounds_of(c, min(c.symbols & names)) for c in told if len(c.symbols & names) == 1}
    rest = any(c.symbols & names and not bounds.get(c) for c in told)
    if access.kind == "store" and (rest or None in access.indices):
        where, by_data = conjunction((*told, *idle)), None in access.indices
        return Elements((None,) * len(shape), exact=exact, where=where, by_data=by_data)
    ranges: list[Range | None] = []
    for index, extent in zip(indices, shape, strict=True):
        if not any(bound and index.symbols <= c.symbols for c, bound in bounds.items()):
            ranges.append(None)
            continue
        own = (bounds_of(c, min(index.symbols)) for c in held if c.symbols & names == index.symbols)
        found = _range([bound for bound in own if bound], extent, scalars)
        ranges.append(None if found == Range(ZERO, extent) else found)
    guards = tuple(c for c in told if not c.symbols & names)
    return Elements(tuple(ranges), guards, idle, exact and not rest)


def _range(bounds: Sequence[tuple[Expr | None, Expr | None]], extent: Expr, scalars: frozenset[str]) -> Range:
    """The range between bounds, those left out that another one plainly makes idle."""
    lower = undominated((low for low, _ in bounds if low is not None), scalars)
    upper = undominated((-high for _, high in bounds if high is not None), scalars)
    end = minimum(*(1 - high for high in upper)) if upper else extent
    return Range(maximum(*lower) if lower else ZERO, end)


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
        passed = (loop.passes.substitute(named) for loop in load.loops if loop.passes is not None)
        inside = (*unit.domain, *(ge(passes, 1) for passes in passed))
        before: list[_Before] = []
        doubtful = not load.exact or None in load.indices
        for store, first in stores:
            vague = not store.exact or store.handed or None in store.indices
            for one in () if before and doubtful and vague else self.before(unit, store, first):
                left = [c for c in one.condition.conjuncts if not is_plain(c, inside, self.scalars)]
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
        back = {name.as_symbol or "": symbol(old) for old, name in named.items()}
        more = tuple(chain.from_iterable(c.substitute(back).conjuncts for c in dict.fromkeys(every)))
        loops = (*load.loops, *unit.loops[len(load.loops) :])
        return (replace(load, domain=(*unit.substitute(back).domain, *more), loops=loops),)

    def asked(self, conditions: Sequence[Condition]) -> bool | None:
        self.questions += 1
        return None if self.questions > _MOST_QUESTIONS else self.possible(conditions)

    def named(self, load: KernelAccess) -> tuple[KernelAccess, dict[str, Expr]]:
        """The load at one part of an element, its counters named apart from those of stores, and these names.

        Indices that are not known count as loops.
        """
        named = {loop.symbol: symbol(f"{loop.symbol}'2") for loop in load.loops}
        unit = load.substitute(named)
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
