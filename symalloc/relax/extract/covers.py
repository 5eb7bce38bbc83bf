"""Finds the buffers that the body of a PrimFunc writes in full, whatever the shapes are.

Only what is plain to see counts: a store under loops over exactly the extents of the buffer, one loop a
dimension in any order, under no condition.  Everything else may leave an element as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import tvm_ffi
from tvm import ir, s_tir, tirx

from symalloc.relax.ir_types import Node, elements

_PLAIN_LOOPS = frozenset(
    {tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED, tirx.ForKind.UNROLLED}
)


class Nest(NamedTuple):
    """Statements and the loops around them.

    `extents` holds the extent of each loop by the address of its variable; `axes` what a block's axis
    stands for, by its address: a loop variable or a constant.
    """

    statement: Node
    extents: dict[int, Node]
    axes: dict[int, Node]


def covered(body: Node) -> set[int]:
    """The addresses of the buffers that `body` stores to at every index, provided that nothing leaves a
    loop early.
    """
    return {nest.statement.buffer.__chandle__() for nest in stores(body) if _is_full(nest)}


def stores(body: Node) -> Iterator[Nest]:
    """The stores of `body` that stand under nothing but loops from 0 on."""
    pending = [Nest(body, {}, {})]
    while pending:
        nest = pending.pop()
        if type(nest.statement) is tirx.BufferStore:
            yield nest
        else:
            pending += _inner(nest)


def _inner(nest: Nest) -> list[Nest]:
    """The statements inside that are run without a condition."""
    statement, extents, axes = nest
    match statement:
        case tirx.SeqStmt():
            return [Nest(inner, extents, axes) for inner in elements(statement.seq)]
        case tirx.For() if _is_plain(statement):
            around = extents | {statement.loop_var.__chandle__(): statement.extent}
            return [Nest(statement.body, around, axes)]
        case s_tir.SBlockRealize() if constant_extent(statement.predicate) == 1:
            block = statement.block
            bound = zip(elements(block.iter_vars), elements(statement.iter_values), strict=True)
            known = {axis.var.__chandle__(): _resolved(value, axes) for axis, value in bound}
            return [Nest(block.body, extents, axes | known)]
    return []


def _is_plain(loop: Node) -> bool:
    return constant_extent(loop.min) == 0 and loop.step is None and loop.kind in _PLAIN_LOOPS


def _is_full(nest: Nest) -> bool:
    """Return whether the loops around a store run through all of its buffer, and any other loop runs."""
    idle = idle_loops(nest)
    return idle is not None and all((constant_extent(extent) or 0) >= 1 for extent in idle)


def idle_loops(nest: Nest) -> list[Node] | None:
    """The extents of the loops that a store's place does not depend on; None where the others do not run
    through all of its buffer, each place once.
    """
    store = nest.statement
    kind = store.buffer.ty
    indices, shape = elements(store.indices), elements(kind.shape)
    if len(kind.strides) or len(indices) != len(shape):
        return None
    unused = dict(nest.extents)
    for index, extent in zip(indices, shape, strict=True):
        place = _resolved(index, nest.axes)
        if constant_extent(place) == 0 and constant_extent(extent) == 1:
            continue
        looped = unused.pop(place.__chandle__(), None) if type(place) is ir.Var else None
        if looped is None or not same_extent(looped, extent):
            return None
    return list(unused.values())


def _resolved(value: Node, axes: dict[int, Node]) -> Node:
    return axes.get(value.__chandle__(), value) if type(value) is ir.Var else value


def constant_extent(value: Node) -> int | None:
    """The value of an integer literal."""
    return int(value.value) if type(value) is tirx.IntImm else None


def same_extent(left: Node, right: Node) -> bool:
    """Return whether two scalar expressions are written alike."""
    number = constant_extent(left)
    if number is not None:
        return number == constant_extent(right)
    return bool(tvm_ffi.structural_equal(left, right))
