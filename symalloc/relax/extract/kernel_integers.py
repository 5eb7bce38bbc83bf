"""Integers that the buffers of a kernel hold because constants say so, followed through its body.

What is loaded of them is a symbol, for which the values are put in, pass by pass.  Nothing is executed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod
from typing import NamedTuple, TypeAlias, TypeVar

from symalloc.program.ir import KernelAccess, KernelLoop, Origin
from symalloc.relax.extract.kernel_values import Indices, KernelScope
from symalloc.relax.extract.tir_to_expr import Symbols
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

    values: Integers
    shape: tuple[int, ...]
    indices: tuple[Expr, ...]


class _Store(NamedTuple):
    indices: tuple[Expr, ...]
    value: Expr
    scope: KernelScope


@dataclass(slots=True)
class _Buffer:
    """A buffer of integers: its elements, or the stores they come from; neither where not all is known."""

    shape: tuple[int, ...]
    limits: range
    values: Integers | None
    stores: list[_Store] | None = field(default_factory=list)


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
        limits = _limits(str(buffer.ty.dtype.dtype))
        extents = [constant_extent(extent) for extent in elements(buffer.ty.shape)]
        shape = _known(extents)
        if self._following and limits and len(shape) == len(extents) and prod(shape) <= MOST_INTEGERS:
            self._buffers[buffer.__chandle__()] = _Buffer(shape, limits, values)

    def holds(self, buffer: Node) -> bool:
        """Return whether a buffer was declared."""
        return buffer.__chandle__() in self._buffers

    def load(self, buffer: Node, indices: Indices) -> Expr | None:
        """The symbol of the element at `indices`; None where that is not known."""
        values, known, key = self.content(buffer), _known(indices), buffer.__chandle__()
        if values is None or len(known) != len(self._buffers[key].shape):
            return None
        if (key, known) not in self._names:
            name = self._symbols.new("element", Origin.SCALAR)
            self._lookups[name] = _Lookup(values, self._buffers[key].shape, known)
            self._names[key, known] = symbol(name)
        return self._names[key, known]

    def store(self, buffer: Node, indices: Indices, value: Expr | None, scope: KernelScope) -> None:
        """Note a store."""
        found, known = self._buffers.get(buffer.__chandle__()), _known(indices)
        if found is None:
            return
        exact = value is not None and scope.exact and len(known) == len(found.shape)
        if found.values is not None or found.stores is None or value is None or not exact:
            found.values = found.stores = None
        else:
            found.stores.append(_Store(known, value, scope))

    def content(self, buffer: Node) -> Integers | None:
        """The elements of a buffer behind what was stored so far; None where that is not known."""
        found = self._buffers.get(buffer.__chandle__())
        if found is None or found.values is not None or not found.stores:
            return None if found is None else found.values
        if any(store.scope.loops[:1] == self.around[:1] != () for store in found.stores):
            return None  # another pass of a loop around may store it
        values: list[int | None] = [None] * prod(found.shape)
        known = all(self._stored(store, found, values) for store in found.stores)
        found.values, found.stores = tuple(values) if known else None, None
        return found.values

    def _stored(self, store: _Store, buffer: _Buffer, values: list[int | None]) -> bool:
        """Write to `values` what a store does in all its passes; False where that is not known."""
        domain, loops = store.scope.domain, store.scope.loops
        parts: tuple[Expr | Condition, ...] = (store.value, *store.indices, *domain)
        rows = self._rows({loop.symbol for loop in loops}.union(*(p.symbols for p in parts)), loops)
        for row in rows or ():
            where = [_value(index, row) for index in store.indices]
            taken = [condition.substitute(_constants(row)).as_bool for condition in domain]
            if None in where or (None in taken and False not in taken):
                return False
            place = _place(_known(where), buffer.shape)
            if place is not None and all(taken):
                value = _value(store.value, row)
                values[place] = value if value in buffer.limits else None
        return rows is not None

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


def _limits(dtype: str) -> range:
    """The integers that a type holds; none for any other type."""
    bits = dtype.removeprefix("u").removeprefix("int")
    if dtype == "bool":
        return range(2)
    if not bits.isdigit() or not dtype.startswith(("int", "uint")):
        return range(0)
    half = 2 ** (int(bits) - 1)
    return range(2 * half) if dtype.startswith("u") else range(-half, half)


def _known(found: Sequence[T | None]) -> tuple[T, ...]:
    return tuple([one for one in found if one is not None])
