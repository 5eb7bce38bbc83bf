"""Indices of a kernel's body that are not inside by sight, each with the extent that it must stay below."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from symalloc.analysis.facts import extent_facts
from symalloc.program.ir import Kernel, KernelAccess, KernelBuffer, KernelScalar
from symalloc.size.choice import is_nonnegative, maximum, minimum
from symalloc.size.condition import Condition, Relation, le, lt
from symalloc.size.expr import Atom, Expr, FloorDiv, Mod, Monomial, Symbol, floordiv, product, symbol


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBound:
    """Index number `axis` of an access, and the extent of the buffer there; in elements, over the kernel's
    symbols.

    `range` are its extremes over the loops.  `in_memory`: whatever it is, the element lies in the memory of
    the buffer, because the other indices make up for it.
    """

    access: KernelAccess
    buffer: KernelBuffer
    axis: int
    index: Expr
    extent: Expr
    range: Extremes
    in_memory: bool = False

    @property
    def certain_range(self) -> tuple[Expr, Expr]:
        """The least and the greatest index that must be inside.

        Where it is not known which passes are executed, these are the ends swapped: some pass must be inside.
        """
        ends = self.range.least, self.range.greatest
        return ends if self.access.exact else (ends[1], ends[0])


def index_bounds(kernel: Kernel, accesses: Iterable[KernelAccess]) -> Iterator[IndexBound]:
    """The indices of `accesses` that are not inside by sight; those that are not known are left out."""
    scalars = scalars_of(kernel)
    buffers = (*kernel.parameters, *kernel.own_buffers)
    for access in accesses:
        buffer = buffers[access.parameter]
        if not isinstance(buffer, KernelBuffer) or buffer.shape is None:
            continue
        if len(buffer.shape) != len(access.indices):
            continue
        for axis, (index, extent) in enumerate(zip(access.indices, buffer.shape, strict=True)):
            if index is None or _is_inside(access, index, extent, scalars):
                continue
            found = _over_loops(index, access, scalars)
            yield IndexBound(access=access, buffer=buffer, axis=axis, index=index, extent=extent, range=found)


def place_in_memory(kernel: Kernel, bound: IndexBound) -> IndexBound | None:
    """The number of the element that an access is at, counted row by row, and that of all elements.

    None where these are not known, and for a buffer of one dimension.
    """
    access, shape = bound.access, bound.buffer.shape
    known = [index for index in access.indices if index is not None]
    if shape is None or len(shape) < 2 or len(known) < len(shape) or bound.buffer.layout is not None:
        return None
    place = known[0]
    for index, extent in zip(known[1:], shape[1:], strict=True):
        place = place * extent + index
    found = _over_loops(place, access, scalars_of(kernel))
    return replace(bound, index=place, extent=product(shape), range=found)


def _over_loops(index: Expr, access: KernelAccess, scalars: frozenset[str]) -> Extremes:
    counters = [loop.symbol for loop in access.loops]
    return extremes(index, access.domain, counters, partial(is_nonnegative, signed=scalars))


def unknown_indices(kernel: Kernel) -> int:
    """Count the indices that depend on data."""
    return sum(index is None and not access.unread for access in kernel.accesses for index in access.indices)


def _is_inside(access: KernelAccess, index: Expr, extent: Expr, scalars: frozenset[str]) -> bool:
    """Return whether an index is plainly inside: mostly the symbol of a loop that ends at the extent."""
    name = index.as_symbol
    if name is not None and any(loop.symbol == name and loop.passes == extent for loop in access.loops):
        return True
    return is_nonnegative(index, scalars) and is_below(index, extent, access.domain, scalars)


def scalars_of(kernel: Kernel) -> frozenset[str]:
    """The symbols of a kernel that may be negative: no extent is one of them."""
    names = {p.name for p in kernel.parameters if isinstance(p, KernelScalar)}
    return frozenset(names - {extent.as_symbol for extent in _extents(kernel)})


def entry_facts_of(kernel: Kernel) -> tuple[Condition, ...]:
    """The facts on entry to a kernel: the extents of its buffers are not negative."""
    return extent_facts(_extents(kernel))


def _extents(kernel: Kernel) -> Iterator[Expr]:
    return (e for p in kernel.parameters if isinstance(p, KernelBuffer) for e in p.shape or ())


# -- extremes over loops -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Extremes:
    """The least and the greatest value of an expression where `where` holds.

    `counters` are the loop symbols that are left in `least`, `greatest` and `where`, all >= 0.
    """

    least: Expr
    greatest: Expr
    where: tuple[Condition, ...]
    counters: tuple[str, ...] = ()


def extremes(
    expr: Expr, where: Iterable[Condition], counters: Sequence[str], nonnegative: Callable[[Expr], bool]
) -> Extremes:
    """The extremes of `expr` at the points of `where`, over sizes and `counters` (from the outside in).

    `nonnegative` tells which expressions over sizes are known to be >= 0.
    """
    found = Extremes(least=expr, greatest=expr, where=tuple(dict.fromkeys(where)), counters=tuple(counters))
    for counter in reversed(counters):
        found = _without(found, counter, nonnegative) or found
    return found


def _without(found: Extremes, counter: str, nonnegative: Callable[[Expr], bool]) -> Extremes | None:
    """The extremes with `counter` eliminated; None where its ends are not plain.

    A bound is over sizes, or over symbols of other loops where it is the only one on its side.
    """
    others = frozenset(found.counters) - {counter}
    read = [bounds_of(c, counter, others) for c in found.where if counter in c.symbols]
    known = [bounds for bounds in read if bounds is not None]
    lowers = dict.fromkeys(low for low, _ in known if low is not None)
    uppers = dict.fromkeys(high for _, high in known if high is not None)
    counted = counter in found.least.symbols | found.greatest.symbols
    several = any(len(s) > 1 and b.symbols & others for s in (lowers, uppers) for b in s)
    if len(known) < len(read) or (counted and several):
        return None
    lower = maximum(*lowers) if lowers else None
    upper = minimum(*uppers) if uppers else None
    least = _at_end(found.least, counter, lower, upper, nonnegative)
    greatest = _at_end(found.greatest, counter, upper, lower, nonnegative)
    if least is None or greatest is None:
        return None
    kept = [condition for condition in found.where if counter not in condition.symbols]
    runs = [le(a, b) for a in lowers for b in uppers]
    return Extremes(
        least=least,
        greatest=greatest,
        where=tuple(c for c in dict.fromkeys((*kept, *runs)) if c.as_bool is not True),
        counters=tuple(c for c in found.counters if c in others),
    )


def bounds_of(
    condition: Condition, counter: str, others: frozenset[str] = frozenset()
) -> tuple[Expr | None, Expr | None] | None:
    """The lower and the upper bound that a relation sets; None for what is no bound."""
    if not isinstance(condition, Relation) or condition.operator == "!=":
        return None
    factor = factor_of(condition.expr, counter)
    number = None if factor is None else factor.as_constant
    if not number:
        return None
    rest = condition.expr - symbol(counter) * number  # number * counter + rest <= 0, or == 0
    if abs(number) != 1 and (condition.operator == "==" or rest.symbols & others):
        return None
    upper = floordiv(-rest, number) if number > 0 else None
    lower = -floordiv(-rest, -number) if number < 0 else None
    if condition.operator == "==":
        return (upper, upper) if lower is None else (lower, lower)
    return lower, upper


def factor_of(expr: Expr, counter: str) -> Expr | None:
    """The factor of the symbol `counter` in `expr`; None where `expr` is not linear in it."""
    factor, rest = _taken_out(expr, Symbol(counter))
    return None if counter in factor.symbols or counter in rest.symbols else factor


def _at_end(
    expr: Expr, counter: str, towards: Expr | None, away: Expr | None, nonnegative: Callable[[Expr], bool]
) -> Expr | None:
    """`expr` at the end of a loop that it grows towards; None where that end is not known."""
    factor = factor_of(expr, counter)
    if factor is None or not factor.terms:
        return None if factor is None else expr
    end = towards if nonnegative(factor) else away if nonnegative(-factor) else None
    return None if end is None else expr.substitute({counter: end})


# -- bounds plain from the form ----------------------------------------------------------------------------


_DEEPEST = 8


def is_below(
    expr: Expr, end: Expr, facts: Collection[Condition], scalars: Collection[str], depth: int = 0
) -> bool:
    """Return whether `expr < end` plainly follows from `facts`."""
    below = lt(expr, end)
    if below.as_bool is not None:
        return below.as_bool
    if below in facts:
        return True
    if depth >= _DEEPEST:
        return False
    atom = expr.as_atom
    if isinstance(atom, Mod):
        return is_nonnegative(end - atom.denominator, scalars)
    if isinstance(atom, FloorDiv):
        return is_below(atom.numerator, end * atom.denominator, facts, scalars, depth + 1)
    rows = (a for a in expr.atoms if isinstance(a, FloorDiv | Symbol))
    return any(_is_below_in_rows(expr, row, end, facts, scalars, depth + 1) for row in rows)


def is_plain(condition: Condition, inside: Collection[Condition], scalars: Collection[str]) -> bool:
    """True if a condition plainly follows from others."""
    if condition.as_bool is not None:
        return condition.as_bool
    if condition in inside:
        return True
    if not isinstance(condition, Relation) or condition.operator != "<=":
        return False
    positive = Expr({m: c for m, c in condition.expr.terms.items() if c > 0})
    end = positive - condition.expr + 1  # positive < end
    return is_nonnegative(-condition.expr, scalars) or is_below(positive, end, inside, scalars)


def _is_below_in_rows(
    expr: Expr,
    atom: FloorDiv | Symbol,
    end: Expr,
    facts: Collection[Condition],
    scalars: Collection[str],
    depth: int,
) -> bool:
    """`row * width + column` is below `rows * width`, where the row and the column are below theirs."""
    width, column = _taken_out(expr, atom)
    if not is_nonnegative(width, scalars):
        return False
    rows = divided(end, width)
    row = Expr({((atom, 1),): 1})
    if rows is None or (isinstance(atom, Symbol) and lt(row, rows) not in facts):
        return False
    return is_below(column, width, facts, scalars, depth) and is_below(row, rows, facts, scalars, depth)


def _taken_out(expr: Expr, atom: Atom) -> tuple[Expr, Expr]:
    """The factor of `atom` in `expr`, and what is left; no factor where it stands in a power."""
    factor, rest = dict[Monomial, int](), dict[Monomial, int]()
    for monomial, coefficient in expr.terms.items():
        if (atom, 1) in monomial:
            factor[tuple([part for part in monomial if part[0] != atom])] = coefficient
        else:
            rest[monomial] = coefficient
    return Expr(factor), Expr(rest)


def divided(expr: Expr, width: Expr) -> Expr | None:
    """`expr / width`; None where it does not come out even, or `width` is a sum."""
    if len(width.terms) != 1:
        return None
    ((monomial, coefficient),) = width.terms.items()
    found = expr.over(monomial)
    if found is None or any(c % coefficient for c in found.terms.values()):
        return None
    return Expr({m: c // coefficient for m, c in found.terms.items()})
