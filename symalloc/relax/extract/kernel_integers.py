"""Integers that the buffers of a kernel hold because constants say so, followed through its body.

What is loaded of them is a symbol, for which the values are put in, pass by pass.  Nothing is executed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import NamedTuple, TypeAlias, TypeVar

from symalloc.program.ir import KernelAccess, KernelLoop, Origin
from symalloc.relax.extract.kernel_values import Indices, KernelScope
from symalloc.relax.extract.tir_to_expr import Symbols, numbers_of
from symalloc.relax.ir_types import Node, constant_extent, elements
from symalloc.size.condition import FALSE, TRUE, Condition
from symalloc.size.expr import Expr, constant, symbol

MOST_INTEGERS = 4096
"""The elements of a tensor that are followed, and the passes for which values are put in."""
Integers: TypeAlias = tuple[int | None, ...]
"""The elements of a tensor, row by row; None for one that is not known."""
Row: TypeAlias = dict[str, int]
T = TypeVar("T")


class _Lookup(NamedTuple):
    """The element of a tensor at `indices`."""

    values: list[int | None]
    shape: tuple[int, ...]
    indices: tuple[Expr, ...]


@dataclass(slots=True)
class _Buffer:
    """A buffer of integers; nothing is known of it where `values` is None.

    `stored` and `loaded` are the outermost loop around its last store and load; None where there is none yet.
    """

    shape: tuple[int, ...]
    limits: range
    values: list[int | None] | None
    stored: tuple[KernelLoop, ...] = ()
    loaded: tuple[KernelLoop, ...] | None = None


class KernelIntegers:
    """The integers in the buffers of one kernel, as far as a walk through its body has got.

    `around` are the loops that it is in.  Nothing is known where it is not `following`.
    """

    def __init__(self, symbols: Symbols, *, following: bool = False) -> None:
        self.around: tuple[KernelLoop, ...] = ()
        self._symbols, self._following = symbols, following
        self._buffers: dict[int, _Buffer] = {}
        self._lookups: dict[str, _Lookup] = {}
        self._names: dict[tuple[int, tuple[Expr, ...]], Expr] = {}

    def declare(self, buffer: Node, values: Integers | None = None) -> None:
        """Note a buffer that holds `values` from here on, or nothing yet."""
        limits = numbers_of(buffer.ty.dtype.dtype)
        extents = [constant_extent(extent) for extent in elements(buffer.ty.shape)]
        shape = _known(extents)
        if self._following and limits and len(shape) == len(extents) and prod(shape) <= MOST_INTEGERS:
            held: list[int | None] = [*values] if values else [None] * prod(shape)
            self._buffers[buffer.__chandle__()] = _Buffer(shape, limits, held)

    def holds(self, buffer: Node) -> bool:
        """Return whether a buffer was declared."""
        return buffer.__chandle__() in self._buffers

    def load(self, buffer: Node, indices: Indices) -> Expr | None:
        """The symbol of the element at `indices`; None where that is not known."""
        found, known, key = self._here(buffer), _known(indices), buffer.__chandle__()
        if found is None or found.values is None or len(known) != len(found.shape):
            return None
        found.loaded = self.around[:1]
        if (key, known) not in self._names:
            name = self._symbols.new("element", Origin.SCALAR)
            self._lookups[name] = _Lookup(found.values, found.shape, known)
            self._names[key, known] = symbol(name)
        return self._names[key, known]

    def store(self, buffer: Node, indices: Indices, value: Expr | None, scope: KernelScope) -> None:
        """Write what a store does in all its passes; a buffer that was loaded is not known behind it."""
        found, known = self._buffers.get(buffer.__chandle__()), _known(indices)
        if found is None or found.values is None:
            return
        if found.loaded == scope.loops[:1] != ():  # a later pass loads something else
            found.values[:] = [None] * len(found.values)
        exact = value is not None and scope.exact and len(known) == len(found.shape)
        loops, parts = scope.loops, (*known, *scope.domain, *(() if value is None else (value,)))
        names = {loop.symbol for loop in loops}.union(*(part.symbols for part in parts))
        rows = self._rows(names, loops) if exact and found.loaded is None else None
        found.stored, found.values = loops[:1], None if rows is None else found.values
        for row in rows or ():
            where = [_value(index, row) for index in known]
            taken = [condition.substitute(_constants(row)).as_bool for condition in scope.domain]
            if None in where or (None in taken and False not in taken):
                found.values = None
            place = _place(_known(where), found.shape) if None not in where else None
            if found.values is not None and place is not None and all(taken) and value is not None:
                number = _value(value, row)
                found.values[place] = number if number is not None and number in found.limits else None

    def content(self, buffer: Node) -> Integers | None:
        """The elements of a buffer behind what was stored so far; None where none of them is known."""
        found = self._here(buffer)
        values = () if found is None or found.values is None else tuple(found.values)
        return values if values.count(None) < len(values) else None

    def _here(self, buffer: Node) -> _Buffer | None:
        """A buffer; None in a loop, another pass of which may store something else."""
        found = self._buffers.get(buffer.__chandle__())
        return None if found is not None and found.stored == self.around[:1] != () else found

    def followed(self, access: KernelAccess) -> Iterable[KernelAccess]:
        """The accesses at numbers that one at elements of known tensors is, each once; none for any other."""
        indices = frozenset[str]().union(*(index.symbols for index in access.indices if index is not None))
        if indices.isdisjoint(self._lookups):
            return ()
        spoken = indices.union(*(condition.symbols for condition in access.domain)) & self._lookups.keys()
        found: dict[object, KernelAccess] = {}
        for row in self._rows(spoken, access.loops) or ():
            made = access.substitute(_constants(row))
            parts: list[Expr | Condition] = [*_known(made.indices), *made.domain]
            unknown = any(not part.symbols.isdisjoint(self._lookups) for part in parts)
            if FALSE not in made.domain and not unknown:
                domain = tuple(condition for condition in made.domain if condition != TRUE)
                loops = tuple(loop for loop in made.loops if loop.symbol not in row)
                found[made.indices, domain] = replace(made, domain=domain, loops=loops, copies=())
        return found.values()

    def _rows(self, names: Iterable[str], loops: Sequence[KernelLoop]) -> list[Row] | None:
        """The values of `names`, and of what they hang on, in each pass of `loops`, without elements that are
        not known; None where a name stands for something else, and for too many passes.
        """
        passes = {loop.symbol: loop.passes for loop in loops}
        wanted, pending = set[str](), list(names)
        while pending:
            name = pending.pop()
            lookup, last = self._lookups.get(name), passes.get(name)
            if lookup is None and last is None:
                return None
            if name not in wanted:
                sources = lookup.indices if lookup is not None else () if last is None else (last,)
                wanted.add(name)
                pending += [other for source in sources for other in source.symbols]
        counted = [(name, last) for name, last in passes.items() if name in wanted and last is not None]
        lookups = [(name, lookup) for name, lookup in self._lookups.items() if name in wanted]
        rows = list(islice(_passes(counted, {}), MOST_INTEGERS + 1))
        for row in rows:
            for name, lookup in lookups:  # as they were met
                where = [_value(index, row) for index in lookup.indices]
                place = None if None in where else _place(_known(where), lookup.shape)
                value = None if place is None else lookup.values[place]
                row.update({} if value is None else {name: value})
        return None if len(rows) > MOST_INTEGERS else rows


def _value(expr: Expr, row: Row) -> int | None:
    """The value in one pass; None where it is not known."""
    return expr.evaluate(row) if expr.symbols <= row.keys() else expr.substitute(_constants(row)).as_constant


def _constants(row: Row) -> Mapping[str, Expr]:
    return {name: constant(value) for name, value in row.items()}


def _passes(loops: Sequence[tuple[str, Expr]], row: Row) -> Iterator[Row]:
    """The values of the counters of `loops`, from the outside in."""
    if not loops:
        yield dict(row)
        return
    (name, last), *inner = loops
    for count in range(last.evaluate(row)):
        yield from _passes(inner, {**row, name: count})


def _place(indices: Sequence[int], shape: Sequence[int]) -> int | None:
    """The number of an element, row by row; None outside."""
    place = 0
    for index, extent in zip(indices, shape, strict=True):
        if not 0 <= index < extent:
            return None
        place = place * extent + index
    return place


def _known(found: Sequence[T | None]) -> tuple[T, ...]:
    return tuple([one for one in found if one is not None])
