"""Kernels that take a tensor as a part of a larger one, at constant indices.

No strides, and no pointer into the middle of a tensor: the parameter becomes the whole, and a number is added
to each index into it.  At offset zero that is a tensor with room behind its rows.  `restores` proves of a
finished kernel that it is that, from both texts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tvm_ffi
from tvm import ir, tirx
from tvm.ir.prim import expr as prim

from symalloc.relax.emit.kernel_offsets import accepts_offset
from symalloc.relax.ir_types import (
    Node,
    VarNode,
    constant_extent,
    elements,
    same_extent,
    typed_var,
    visit,
    with_parameters,
    with_shape,
)
from symalloc.relax.shrink.kernel_stages import stages_of
from symalloc.relax.shrink.same_results import promises

Offsets: TypeAlias = tuple[int, ...]
_INDEX = ir.PrimType("int64")


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor begins at the index `offsets` of a whole with other `extents`: numbers, symbols that the whole
    tells its kernels, or None where both are as long.
    """

    offsets: Offsets
    extents: tuple[int | VarNode | None, ...]


def with_parts(
    kernel: tirx.PrimFunc, parts: Mapping[int, Part], through: Mapping[int, int] = {}
) -> tirx.PrimFunc | None:
    """`kernel` with a parameter for a whole at each of the positions of `parts`.

    Of those that are given one whole all but one are accessed `through` that, and used for nothing then: the
    promise that buffers are apart stays.  None where it does more with a tensor than to load and store
    elements, or nothing would tell it a size.
    """
    params = [*elements(kernel.params)]
    if not parts.keys() <= accepts_offset(kernel):
        return None
    lost: list[Node] = []
    for position, part in parts.items():
        old = params[position]
        shape = elements(old.ty.shape)
        pairs = [*zip(shape, part.extents, strict=True)]
        lost += [own for own, extent in pairs if extent is not None]
        whole = [
            own if one is None else tirx.IntImm("int64", one) if isinstance(one, int) else one
            for own, one in pairs
        ]
        params[position] = typed_var(old.name, with_shape(old.ty, whole))
    wholes = {
        kernel.params[position].__chandle__(): (params[through.get(position, position)], part.offsets)
        for position, part in parts.items()
    }
    body = _with_accesses(kernel.body, wholes, lambda one, by: one + by if by else one)
    return with_parameters(kernel, params, body) if _is_told(params, lost) else None


def _with_accesses(
    body: Node,
    buffers: Mapping[int, tuple[VarNode, Offsets]],
    moved: Callable[[Node, int], Node],
) -> Node:
    """`body` with another buffer for each of `buffers`, and its indices `moved` by some numbers."""

    def at(indices: Sequence[Node], offsets: Offsets) -> list[Node]:
        return [moved(one, by) for one, by in zip(indices, offsets, strict=True)]

    def load(node: Node) -> Node:
        found = buffers.get(node.source.__chandle__())
        return node if found is None else tirx.BufferLoad(found[0], at(elements(node.indices), found[1]))

    def store(node: Node) -> Node:
        found = buffers.get(node.buffer.__chandle__())
        if found is None:
            return node
        return tirx.BufferStore(found[0], node.value, at(elements(node.indices), found[1]))

    def region(node: Node) -> Node:
        found = buffers.get(node.source.__chandle__())
        if found is None:
            return node
        ranges = elements(node.region)
        begins = zip(at([one.min for one in ranges], found[1]), ranges, strict=True)
        return tirx.BufferRegion(found[0], [ir.Range.from_min_extent(b, one.extent) for b, one in begins])

    rules = ((ir.TensorLoad, load), (tirx.BufferStore, store), (ir.TensorRegion, region))
    return tvm_ffi.structural_map(body, rules)


def _is_told(params: Sequence[VarNode], lost: Sequence[Node]) -> bool:
    """Return whether something still tells the symbols that are extents in `lost`."""
    shapes = [elements(one.ty.shape) for one in params if type(one.ty) is not ir.PrimType]
    told = {one.__chandle__() for one in (*params, *(extent for shape in shapes for extent in shape))}
    return told.issuperset(one.__chandle__() for one in lost if type(one) is ir.Var)


# -- proof ---------------------------------------------------------------------------------------------------


def restores(
    given: tirx.PrimFunc,
    made: tirx.PrimFunc,
    offsets: Mapping[int, Offsets],
    through: Mapping[int, int] = {},
) -> bool:
    """Return whether it is proved that `made` does with wholes what `given` does with parts of them, which
    begin at `offsets`, by the positions of the parameters; some are accessed `through` others.

    With that added to each index of an access of a part, and the whole in its place, the original must be
    this text, and no part may be left.  A whole is of the type of its part but for extents.  Callers must see
    to it that it holds all of the part, that offsets are the same wherever a tensor is given, and that a
    kernel accesses what it stores to through one parameter: that buffers are apart is promised as it was.
    """
    params, theirs = elements(made.params), elements(given.params)
    alone = len({one.__chandle__() for one in params}) == len(params) == len(theirs)
    if not alone or not offsets.keys() <= accepts_offset(given) & accepts_offset(made):
        return False
    moved: dict[int, tuple[VarNode, Offsets]] = {}
    wholes: dict[int, tuple[VarNode, Offsets]] = {}
    for position, (old, new) in enumerate(zip(theirs, params, strict=True)):
        begin, used = offsets.get(position), params[through.get(position, position)]
        if begin is None and new.same_as(old) and used.same_as(new):
            continue
        own, wide = elements(old.ty.shape), {len(one.ty.shape) for one in (old, new, used)}
        alike = (tvm_ffi.structural_equal(with_shape(one.ty, own), old.ty) for one in (new, used))
        if begin is None or wide != {len(begin)} or not all(alike):
            return False
        moved[old.__chandle__()] = used, tuple(-one for one in begin)
        wholes[new.__chandle__()] = new, (0,) * len(begin)
    found: list[VarNode] = []
    visit(made.body, (ir.Var, found.append))
    if not moved.keys().isdisjoint(one.__chandle__() for one in found) or promises(made) > promises(given):
        return False
    bodies = _with_accesses(given.body, moved, _before), _with_accesses(made.body, wholes, _before)
    # with their parameters: alone, what a block says to read would be taken for a name of its own
    return bool(tvm_ffi.structural_equal(*(with_parameters(made, params, body) for body in bodies)))


def _before(index: Node, by: int) -> Node:
    """The index that is `by` before another one, its number in one place."""
    if index.ty != _INDEX:  # a sum may not fit
        return index - by if by else index
    base, number = _split(index)
    if base is None:
        return tirx.IntImm("int64", number - by)
    return base + (number - by) if number != by else base


def _split(index: Node) -> tuple[Node | None, int]:
    """An index as the sum of anything, None for nothing, and a number."""
    number = 0
    while type(index) in (prim.Add, prim.Sub) and type(index.b) is prim.IntImm:
        number += int(index.b.value) * (1 if type(index) is prim.Add else -1)
        index = index.a
    known = constant_extent(index)
    return (index, number) if known is None else (None, number + known)


def copies_of(kernel: tirx.PrimFunc) -> dict[int, dict[int, Offsets]]:
    """For parameters to each element of which one stage stores once: those of which it loads nothing but the
    element that is so many indices before, and which no other stage uses; all by position.
    """
    stages, found = stages_of(kernel) or (), dict[int, dict[int, Offsets]]()
    positions = {one.__chandle__(): at for at, one in enumerate(elements(kernel.params))}
    for number, stage in enumerate(stages):
        others = [*stages[:number], *stages[number + 1 :]]
        early = any(one.loads(stage.target) for one in stages[: number + 1])
        again = any(one.target.same_as(stage.target) for one in others)
        if early or again or stage.reduces or not stage.is_full:
            continue
        used = [load.source for one in others for load in one.loads()] + [one.target for one in others]
        behind: dict[int, set[Offsets | None]] = {one.__chandle__(): {None} for one in used}
        for load in stage.loads():
            distance = _distance(stage.place, elements(load.indices))
            behind.setdefault(load.source.__chandle__(), set()).add(distance)
        sources = {positions.get(one, -1): by for one, (by, *more) in behind.items() if by and not more}
        found[positions.get(stage.target.__chandle__(), -1)] = sources
    return found


def _distance(one: Sequence[Node], other: Sequence[Node]) -> Offsets | None:
    """The numbers by which indices are behind others; None where that is no number on each axis."""
    pairs = [*zip(map(_split, one), map(_split, other), strict=False)]
    same = (a is b if a is None or b is None else same_extent(a, b) for (a, _), (b, _) in pairs)
    return tuple(m - n for (_, m), (_, n) in pairs) if len(one) == len(other) and all(same) else None
