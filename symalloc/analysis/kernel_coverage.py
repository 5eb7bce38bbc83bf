"""Coverage of kernels: the elements of a parameter that one surely reads as it finds them, or may write.

A load counts if no store to the parameter stands before it: `a[i] = a[i] + 1` reads what was there, a sum
that is set to 0 first does not.  Stores count for all that they may reach; what is not understood may be all.
So an element counts as read only where it is, and as not written only where it is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from symalloc.analysis.kernel_bounds import scalars_of
from symalloc.analysis.ranges import Range
from symalloc.analysis.stored_elements import element_index, stored_elements
from symalloc.program import ir
from symalloc.program.kernel_access import KernelAccess
from symalloc.size.choice import maximum, minimum
from symalloc.size.condition import TRUE, Condition, Relation, ge
from symalloc.size.expr import ZERO, Expr, symbol


class Elements(NamedTuple):
    """A box of elements of a parameter, over the symbols of the kernel, where all `guards` hold.

    `ranges` holds an entry for each dimension: None for all of it.  `runs` hold where loops that do not count
    elements of it (those of a sum) are run at all.  `exact`: these elements and no others; otherwise some of
    them.  `where` holds at each of them, over `element_index` of each dimension, where they are no box.
    `by_data`: which of those they are hangs on the elements of a buffer.
    """

    ranges: tuple[Range | None, ...]
    guards: tuple[Condition, ...] = ()
    runs: tuple[Condition, ...] = ()
    exact: bool = True
    where: Condition = TRUE
    by_data: bool = False

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
        bounds = (bound for one in self.ranges if one is not None for bound in one)
        spoken = self.where.symbols - {element_index(axis).as_symbol for axis in range(len(self.ranges))}
        return spoken.union(*(e.symbols for e in bounds), *(c.symbols for c in self.conditions))

    def substitute(self, values: Mapping[str, Expr]) -> Elements:
        """The elements with symbols replaced."""
        ranges = (r and Range(r.begin.substitute(values), r.end.substitute(values)) for r in self.ranges)
        guards = tuple(c.substitute(values) for c in self.guards)
        runs = tuple(c.substitute(values) for c in self.runs)
        where = self.where.substitute(values)
        return self._replace(ranges=tuple(ranges), guards=guards, runs=runs, where=where)


class ParameterCoverage(NamedTuple):
    """The content of one parameter that a kernel needs, and what it writes.

    `reads` are boxes that are read, exactly or in part; `surely` unless each of the loads may be left out.
    `writes` are boxes that hold all that it may write, None where that may be everything.
    """

    reads: tuple[Elements, ...]
    surely: bool
    writes: tuple[Elements, ...] | None


def kernel_coverage(kernel: ir.Kernel) -> Mapping[int, ParameterCoverage]:
    """The coverage of each buffer parameter, by its position.

    A kernel that stores nothing stands for one whose body is elsewhere: nothing is known of it.
    """
    if not any(access.kind == "store" for access in kernel.accesses):
        buffers = (i for i, p in enumerate(kernel.parameters) if isinstance(p, ir.KernelBuffer))
        return dict.fromkeys(buffers, ParameterCoverage((), surely=False, writes=None))
    scalars = scalars_of(kernel)
    found: dict[int, list[tuple[int, KernelAccess]]] = {}
    for number, access in enumerate(kernel.accesses):
        found.setdefault(access.parameter, []).append((number, access))
    return {
        position: _coverage(parameter, found.get(position, []), scalars)
        for position, parameter in enumerate(kernel.parameters)
        if isinstance(parameter, ir.KernelBuffer)
    }


_MOST_READS = 4
"""The number of boxes that are kept of what a kernel reads of one parameter."""


def _coverage(
    parameter: ir.KernelBuffer, accesses: Sequence[tuple[int, KernelAccess]], scalars: frozenset[str]
) -> ParameterCoverage:
    stores = [(number, access) for number, access in accesses if access.kind == "store"]
    first = stores[0][0] if stores else None
    loads = [a for n, a in accesses if a.kind == "load" and (first is None or n < first)]
    if loads and stores and accesses[len(loads) - 1][0] + 1 == first and loads[-1].handed:
        loads.pop()  # its pointer is handed on: it may be loaded, stored, or both
    loads = [fresh for load in loads if (fresh := _before_stores(load, [a for _, a in stores])) is not None]
    surely = [load for load in loads if load.exact]
    boxes = dict.fromkeys(_box(load, parameter.shape) for load in surely or loads)
    reads = tuple(sorted(boxes, key=lambda box: not (box.is_whole and box.exact)))[:_MOST_READS]
    if reads and reads[0].is_whole and reads[0].exact:
        reads = reads[:1]
    written = _written(parameter, [access for _, access in stores], scalars)
    return ParameterCoverage(reads, bool(surely), written)


def _before_stores(load: KernelAccess, stores: Sequence[KernelAccess]) -> KernelAccess | None:
    """A load as far as no pass of the loops that it shares with later stores has stored what it loads.

    All of it where they store just what it loads; otherwise its first passes.  None where it has none.
    """
    inner = [store for store in stores if load.loops[:1] == store.loops[:1] != ()]
    same = all(store.indices == load.indices for store in inner)
    if same and all(store.domain == load.domain for store in inner):
        return load
    shared = max(sum(a == b for a, b in zip(load.loops, store.loops, strict=False)) for store in inner)
    counted = {name for index in load.indices if same for name in _counting(index, load)}
    start = {loop.symbol: ZERO for loop in load.loops[:shared] if loop.symbol not in counted}
    domain = tuple(condition.substitute(start) for condition in load.domain)
    if any(condition.as_bool is False for condition in domain):
        return None
    return replace(
        load,
        indices=tuple(index and index.substitute(start) for index in load.indices),
        domain=tuple(condition for condition in domain if condition.as_bool is not True),
        loops=tuple(loop for loop in load.loops if loop.symbol not in start),
    )


def _counting(index: Expr | None, access: KernelAccess) -> Iterator[str]:
    """The loop that counts an index, if there is just one and it reaches each value once."""
    names = [loop.symbol for loop in access.loops if index is not None and loop.symbol in index.symbols]
    if len(names) == 1 and index is not None and _split(index, names[0]) is not None:
        yield names[0]


def may_load(kernel: ir.Kernel, position: int) -> tuple[Elements, ...] | None:
    """The boxes that hold all that a kernel may read of a parameter; None where that may be everything."""
    parameter = kernel.parameters[position]
    loads = [a for a in kernel.accesses if a.parameter == position and a.kind == "load"]
    if not isinstance(parameter, ir.KernelBuffer) or parameter.shape is None or not loads:
        return None
    found = dict.fromkeys(_box(load, parameter.shape) for load in loads)
    return None if any(box.is_whole for box in found) else tuple(found)


def _written(
    parameter: ir.KernelBuffer, stores: Sequence[KernelAccess], scalars: frozenset[str]
) -> tuple[Elements, ...] | None:
    """The elements that the stores may reach; None where that may be everything."""
    if parameter.shape is None or any(store.handed for store in stores):
        return None
    found: dict[Elements, None] = {}
    for store in stores:
        box = _reached(store, parameter.shape, scalars)
        if box.is_whole:
            return None
        found[box] = None
    return tuple(found) if found or not parameter.writes else None


def _reached(store: KernelAccess, shape: tuple[Expr, ...], scalars: frozenset[str]) -> Elements:
    """The elements that a store may reach: a box, if that says it, or what its indices tell."""
    box = _box(store, shape)
    apart = box.symbols.isdisjoint(loop.symbol for loop in store.loops)
    if (box.exact and apart) or len(shape) != len(store.indices):
        return box
    where, exact = stored_elements(store, shape, scalars)
    by_data = None in store.indices
    return Elements((None,) * len(shape), exact=exact, where=where, by_data=by_data)


# -- boxes ---------------------------------------------------------------------------------------------------


class _LoopBounds:
    """The bounds of the loops around one access, and the conditions on sizes alone.

    `understood` unless a condition between loops, or with data, is left out.
    """

    def __init__(self, access: KernelAccess) -> None:
        self.lower: dict[str, list[Expr]] = {loop.symbol: [] for loop in access.loops}
        self.upper: dict[str, list[Expr]] = {loop.symbol: [] for loop in access.loops}
        self.conditions: dict[Condition, None] = {}
        self.understood = access.exact
        plain = len(access.domain) == 2 * len(access.loops)  # nothing but the ends of the loops
        for loop in access.loops if plain else ():
            if loop.passes is not None:
                self.lower[loop.symbol], self.upper[loop.symbol] = [ZERO], [loop.passes]
        for condition in access.domain if not (plain and all(self.lower.values())) else ():
            self.understood &= self.take(condition)

    def take(self, condition: Condition) -> bool:
        """Take in one condition of the domain; False where it is left out."""
        loops = condition.symbols & self.lower.keys()
        if not loops:
            self.conditions[condition] = None
            return True
        name = next(iter(loops))
        if len(loops) > 1 or not isinstance(condition, Relation) or condition.operator == "!=":
            return False
        split = _split(condition.expr, name)
        if split is None:
            return False
        sign, rest = split
        if sign > 0 or condition.operator == "==":
            self.upper[name].append(-rest * sign + 1)
        if sign < 0 or condition.operator == "==":
            self.lower[name].append(-rest * sign)
        return True

    def range_of(self, name: str) -> Range | None:
        """The passes of a loop; None where they have no bounds."""
        lower, upper = self.lower[name], self.upper[name]
        return (
            Range(maximum(*_tightest(lower, 1)), minimum(*_tightest(upper, -1))) if lower and upper else None
        )

    def runs(self, name: str) -> Iterator[Condition]:
        """The conditions for a loop to be run at all, those that always hold left out."""
        for upper in self.upper[name]:
            for lower in self.lower[name]:
                condition = ge(upper - lower, 1)
                if condition.as_bool is not True:
                    yield condition


def _tightest(bounds: Sequence[Expr], sign: int) -> list[Expr]:
    """Lower bounds (`sign` 1) or upper ones (-1), those left out that another one plainly makes idle."""
    kept: list[Expr] = []
    for bound in dict.fromkeys(bounds):
        over = [((other - bound) * sign).as_constant for other in kept]
        if not any(difference is not None and difference > 0 for difference in over):
            kept = [o for o, d in zip(kept, over, strict=True) if d is None or d > 0] + [bound]
    return kept


def _split(expr: Expr, name: str) -> tuple[int, Expr] | None:
    """(1 or -1, rest) of an expression that is plus or minus the symbol `name` and a rest without it."""
    counter = symbol(name)
    (own,) = counter.terms
    sign = expr.terms.get(own)
    if sign not in (1, -1):
        return None
    rest = expr - counter * sign
    return None if name in rest.symbols else (sign, rest)


def _box(access: KernelAccess, shape: tuple[Expr, ...] | None) -> Elements:
    """The elements that an access reaches: exactly, or a box that holds them all."""
    bounds, unused = _LoopBounds(access), {loop.symbol: None for loop in access.loops}
    if shape is None or len(shape) != len(access.indices):
        return Elements((), tuple(bounds.conditions), exact=False)
    ranges: list[Range | None] = []
    exact = bounds.understood
    for index, extent in zip(access.indices, shape, strict=True):
        found = None if index is None else _range(index, bounds, unused)
        exact = exact and found is not None
        ranges.append(None if found == (ZERO, extent) else found)
    runs = dict.fromkeys(condition for name in unused for condition in bounds.runs(name))
    return Elements(tuple(ranges), tuple(bounds.conditions), tuple(runs), exact)


def _range(index: Expr, bounds: _LoopBounds, unused: dict[str, None]) -> Range | None:
    """The range of an index that a loop of its own counts, or none; None for any other."""
    loops = index.symbols & bounds.lower.keys()
    if not loops:
        return Range(index, index + 1)
    name = next(iter(loops))
    split = _split(index, name) if len(loops) == 1 and name in unused else None
    passes = bounds.range_of(name)
    if split is None or passes is None:
        return None
    del unused[name]
    sign, rest = split
    if sign < 0:
        return Range(rest - passes.end + 1, rest - passes.begin + 1)
    return Range(passes.begin + rest, passes.end + rest)
