"""Coverage of kernels: the elements of a parameter that one surely reads as it finds them, or may write.

A load counts if no store to the parameter stands before it: `a[i] = a[i] + 1` reads what was there, a sum
that is set to 0 first does not.  Stores count for all that they may reach; what is not understood may be all.
So an element counts as read only where it is, and as not written only where it is not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from itertools import takewhile
from math import gcd
from typing import NamedTuple, TypeAlias

from symalloc.analysis.kernels.index_bounds import (
    Extremes,
    bounds_of,
    divided,
    extremes,
    factor_of,
    is_below,
    scalars_of,
)
from symalloc.program import ir
from symalloc.program.ir import KernelAccess
from symalloc.size.choice import maximum, minimum
from symalloc.size.condition import TRUE, Condition, Relation, conjunction, eq, ge, le, lt
from symalloc.size.expr import ZERO, Expr, FloorDiv, Mod, floordiv, mod, symbol
from symalloc.size.sign import is_nonnegative, undominated


class Range(NamedTuple):
    """The numbers from `begin` up to `end`, which is not one of them, where `condition` holds."""

    begin: Expr
    end: Expr
    condition: Condition = TRUE


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
        return self.condition.symbols - {element_index(axis).as_symbol for axis in range(len(self.ranges))}

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
        return self._replace(ranges=tuple(ranges), guards=guards, runs=runs, where=where)


Reached: TypeAlias = Callable[[KernelAccess, Sequence[Expr] | None], Elements]

_MOST_READS = 4
"""The number of boxes that are kept of what a kernel reads of one parameter."""


class ParameterCoverage:
    """The content of one parameter that a kernel needs, and what it writes, each found when it is asked for.

    `known` unless the body of the kernel is elsewhere.
    """

    def __init__(
        self, parameter: ir.KernelBuffer, accesses: Sequence[KernelAccess], reached: Reached, *, known: bool
    ) -> None:
        self.parameter, self.accesses, self.reached, self.known = parameter, accesses, reached, known

    @cached_property
    def needed(self) -> Sequence[KernelAccess]:
        """The loads of what no store has written; those that may be left out only where all may be."""
        stores = self._of_kind("store")
        loads = [*takewhile(lambda access: access.kind == "load", self.accesses)]
        if loads and stores and loads[-1].handed:
            loads.pop()  # its pointer is handed on: it may be loaded, stored, or both
        fresh = [kept for load in loads if (kept := _before_stores(load, stores)) is not None]
        return [load for load in fresh if load.exact] or fresh

    @cached_property
    def surely(self) -> bool:
        """True if some of it is read, whatever the data."""
        return any(load.exact for load in self.needed)

    @cached_property
    def reads(self) -> tuple[Elements, ...]:
        """The boxes that are read, exactly or in part."""
        boxes = dict.fromkeys(self.reached(load, self.parameter.shape) for load in self.needed)
        reads = tuple(sorted(boxes, key=lambda box: not (box.is_whole and box.exact)))[:_MOST_READS]
        return reads[:1] if reads and reads[0].is_whole and reads[0].exact else reads

    @cached_property
    def writes(self) -> tuple[Elements, ...] | None:
        """Elements that hold all that it may write; None where that may be everything."""
        stores = self._of_kind("store")
        untouched = self.known and not stores and not self.parameter.writes
        return () if untouched else self._any_of(stores)

    @cached_property
    def loads(self) -> tuple[Elements, ...] | None:
        """Elements that hold all that it may read; None where that may be everything."""
        return self._any_of(self._of_kind("load"))

    def _of_kind(self, kind: str) -> list[KernelAccess]:
        return [access for access in self.accesses if access.kind == kind]

    def _any_of(self, accesses: Sequence[KernelAccess]) -> tuple[Elements, ...] | None:
        """The elements that accesses may reach; None where that may be everything."""
        if self.parameter.shape is None or any(access.handed for access in accesses):
            return None
        found = dict.fromkeys(self.reached(access, self.parameter.shape) for access in accesses)
        return None if any(one.is_whole for one in found) else tuple(found) or None


def kernel_coverage(kernels: Mapping[str, ir.Kernel], name: str) -> Mapping[int, ParameterCoverage]:
    """The coverage of each buffer parameter of a kernel, by its position; empty if there is no such kernel.

    A kernel that stores nothing stands for one whose body is elsewhere: nothing is known of it.
    """
    kernel = kernels.get(name)
    if kernel is None:
        return {}
    known = any(access.kind == "store" for access in kernel.accesses)
    own: defaultdict[int, list[KernelAccess]] = defaultdict(list)
    for access in kernel.accesses if known else ():
        own[access.parameter].append(access)
    reached = cache(partial(accessed_elements, scalars=scalars_of(kernel)))
    return {
        position: ParameterCoverage(parameter, own[position], reached, known=known)
        for position, parameter in enumerate(kernel.parameters)
        if isinstance(parameter, ir.KernelBuffer)
    }


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
    fresh = load.substitute(start)
    if any(condition.as_bool is False for condition in fresh.domain):
        return None
    domain = tuple(condition for condition in fresh.domain if condition.as_bool is not True)
    return replace(fresh, domain=domain, loops=tuple(x for x in load.loops if x.symbol not in start))


def _counting(index: Expr | None, access: KernelAccess) -> Iterator[str]:
    """The loop that counts an index, if there is just one and it reaches each value once."""
    names = [loop.symbol for loop in access.loops if index is not None and loop.symbol in index.symbols]
    factor = factor_of(index, names[0]) if len(names) == 1 and index is not None else None
    if factor is not None and factor.as_constant in (1, -1):
        yield names[0]


# -- the elements that an access reaches -------------------------------------------------------------------


_MOST_STEPS = 32
"""Equations that are solved for one access."""


def element_index(axis: int) -> Expr:
    """Index number `axis` of an element; no symbol of a program has such a name."""
    return symbol(f"i{axis}'")


def accessed_elements(
    access: KernelAccess, shape: Sequence[Expr] | None, scalars: frozenset[str]
) -> Elements:
    """The elements of a buffer of `shape` that an access reaches, or, if not exact, some that hold them all.

    Those of a load are always a box.  The symbols `scalars` may be negative.
    """
    if shape is None or len(shape) != len(access.indices):
        return Elements((), exact=False)
    held, runs, exact = _Solution(access, scalars).held()
    indices = [element_index(axis) for axis in range(len(shape))]
    inside = [lt(index, extent) for index, extent in zip(indices, shape, strict=True)]
    names = frozenset[str]().union(*(index.symbols for index in indices))
    held += (c for c in runs if c.symbols & names)
    told = [c for c in dict.fromkeys(held) if not _is_plain(c, inside, scalars)]
    idle = tuple(c for c in runs if not c.symbols & names and not _is_plain(c, inside, scalars))
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


def _is_plain(condition: Condition, inside: Sequence[Condition], scalars: frozenset[str]) -> bool:
    """True if a condition plainly holds at each element of the buffer."""
    if condition.as_bool is not None:
        return condition.as_bool
    if condition in inside:
        return True
    if not isinstance(condition, Relation) or condition.operator != "<=":
        return False
    positive = Expr({m: c for m, c in condition.expr.terms.items() if c > 0})
    end = positive - condition.expr + 1  # positive < end
    return is_nonnegative(-condition.expr, scalars) or is_below(positive, end, inside, scalars)


class _Solution:
    """Loop counters as expressions over elements, as far as equations between the two tell them."""

    def __init__(self, access: KernelAccess, scalars: frozenset[str]) -> None:
        self.access, self.scalars = access, scalars
        self.passes = {loop.symbol: loop.passes for loop in access.loops}
        self.solved: dict[str, Expr] = {}
        self.conditions: list[Condition] = []
        indexed = ((index, element_index(axis)) for axis, index in enumerate(access.indices))
        self.equations = [(index, value) for index, value in indexed if index is not None]

    def unsolved(self, told: Expr | Condition) -> list[str]:
        return [name for name in self.passes if name in told.symbols and name not in self.solved]

    def solve(self) -> None:
        for _ in range(_MOST_STEPS):
            number = next((n for n, equation in enumerate(self.equations) if self.step(*equation)), None)
            if number is not None:
                del self.equations[number]
            elif not self.paired():
                return

    # -- one equation --------------------------------------------------------------------------------------

    def step(self, index: Expr, value: Expr) -> bool:
        """Solve an equation for one of its counters; False where that is not plain."""
        index = index.substitute(self.solved)
        names = self.unsolved(index)
        if not names:
            self.conditions.append(eq(index, value))
            return True
        factors = {name: factor_of(index, name) for name in names}
        known = {name: factor for name, factor in factors.items() if factor is not None}
        if len(known) < len(names):
            return False
        rest = index.substitute(dict.fromkeys(names, ZERO))
        if len(names) == 1:
            return self.alone(names[0], known[names[0]], value - rest)
        return self.innermost(known, value - rest)

    def alone(self, name: str, factor: Expr, value: Expr) -> bool:
        """`factor * name == value`."""
        number = factor.as_constant
        if not number:
            return False
        value = value if number > 0 else -value
        if abs(number) > 1:
            self.conditions.append(eq(mod(value, abs(number)), 0))
        self.solved[name] = floordiv(value, abs(number))
        return True

    def innermost(self, factors: dict[str, Expr], value: Expr) -> bool:
        """`sum(factor * name) == value`, where one counter stays below what divides all other factors."""
        numbers = [factor.as_constant or 0 for factor in factors.values()]
        step = gcd(*numbers) if all(numbers) else 1
        for name, factor in factors.items():
            passes, others = self.passes[name], [f for n, f in factors.items() if n != name]
            if passes is None or factor != step:
                continue
            width = _common(others, step)
            if width is None or not is_below(passes - 1, width, (), self.scalars):
                continue
            if step > 1:
                self.conditions.append(eq(mod(value, step), 0))
            whole = floordiv(value, step)
            self.solved[name] = mod(whole, width)
            left = [(symbol(n), divided(f, width * step)) for n, f in factors.items() if n != name]
            index = sum((counter * rate for counter, rate in left if rate is not None), ZERO)
            self.equations.append((index, floordiv(whole, width)))
            return True
        return False

    # -- two equations -------------------------------------------------------------------------------------

    def paired(self) -> bool:
        """Put a quotient and its remainder together; False where there is no such pair left."""
        for one in self.equations:
            for other in self.equations:
                row, column = one[0].as_atom, other[0].as_atom
                if isinstance(row, FloorDiv) and isinstance(column, Mod):
                    whole = _put_together(row, column)
                    if whole is None:
                        continue
                    self.equations = [e for e in self.equations if e is not one and e is not other]
                    width = column.denominator
                    self.conditions += (ge(other[1], 0), lt(other[1], width))
                    self.equations.append((whole, one[1] * width + other[1]))
                    return True
        return False

    # -- what is known in the end --------------------------------------------------------------------------

    def held(self) -> tuple[list[Condition], list[Condition], bool]:
        """The conditions at which elements are reached, those at which loops that count no elements are run
        at all, and whether they say all.
        """
        self.solve()
        held = list(self.conditions)
        for index, value in self.equations:
            held += self.between(index.substitute(self.solved), value)
        domain = [condition.substitute(self.solved) for condition in self.access.domain]
        held += (part for one in domain if not self.unsolved(one) for part in one.conjuncts)
        bound = [condition for condition in domain if self.unsolved(condition)]
        where = self.over_loops(ZERO, bound).where
        runs = [condition for condition in where if not self.unsolved(condition)]
        return held, runs, self.access.exact and not self.equations and len(runs) == len(where)

    def over_loops(self, index: Expr, domain: Sequence[Condition]) -> Extremes:
        """The extremes of an expression over the loops whose counters are not solved."""
        names = [name for name in self.passes if name not in self.solved]
        return extremes(index, domain, names, partial(is_nonnegative, signed=self.scalars))

    def between(self, index: Expr, value: Expr) -> Iterator[Condition]:
        """The bounds of an index that is not solved, and the step in which it goes."""
        factors = [factor_of(index, name) for name in self.unsolved(index)]
        rates = [0 if factor is None else factor.as_constant or 0 for factor in factors]
        step = gcd(*rates)
        if step > 1 and 0 not in rates:
            first = index.substitute(dict.fromkeys(self.unsolved(index), ZERO))
            yield eq(mod(value - first, step), 0)
        atom = index.as_atom
        if isinstance(atom, FloorDiv):
            low, high = value * atom.denominator, value * atom.denominator + atom.denominator - 1
            yield from self.bounds(atom.numerator, low, high)
        elif isinstance(atom, Mod) and not self.unsolved(atom.denominator):
            yield lt(value, atom.denominator)
        else:
            yield from self.bounds(index, value, value)

    def bounds(self, index: Expr, low: Expr, high: Expr) -> Iterator[Condition]:
        """That the values of `index` over the loops reach into `low` to `high`."""
        domain = [condition.substitute(self.solved) for condition in self.access.domain]
        found = self.over_loops(index, domain)
        if not self.unsolved(found.least):
            yield le(found.least, high)
        if not self.unsolved(found.greatest):
            yield le(low, found.greatest)


def _common(factors: Sequence[Expr], step: int) -> Expr | None:
    """A divisor of all `factors`, in units of `step`."""
    numbers = [factor.as_constant for factor in factors]
    if all(number is not None and number > 0 for number in numbers):
        return ZERO + gcd(*(number // step for number in numbers if number))
    for factor in factors if step == 1 else ():
        if len(factor.terms) == 1 and all(divided(other, factor) is not None for other in factors):
            return factor
    return None


def _put_together(row: FloorDiv, column: Mod) -> Expr | None:
    """The expression of which `row` is the quotient and `column` the remainder, or both of its quotient."""
    width = column.denominator
    if row.denominator == width:
        outer = row.numerator.as_atom
        same = row.numerator == column.numerator
        inside = isinstance(outer, Mod) and outer.numerator == column.numerator
        if same or (isinstance(outer, Mod) and inside and divided(outer.denominator, width) is not None):
            return row.numerator
        return None
    inner = column.numerator.as_atom
    if isinstance(inner, FloorDiv) and inner.numerator == row.numerator:
        return column.numerator if row.denominator == inner.denominator * width else None
    return None
