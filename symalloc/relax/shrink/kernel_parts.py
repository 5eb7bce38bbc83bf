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


def with_parts(kernel: tirx.PrimFunc, parts: Mapping[int, Part]) -> tirx.PrimFunc | None:
    """`kernel` with a parameter for a whole at each of the positions of `parts`.

    None where it does more with one than to load and store elements, or nothing would tell it a size.  Its
    promise that buffers are apart stays: it is wrong where two are the same whole and one is stored to.
    """
    params = [*elements(kernel.params)]
    if not parts.keys() <= accepts_offset(kernel):
        return None
    wholes: dict[int, tuple[VarNode, Offsets]] = {}
    lost: list[Node] = []
    for position, part in parts.items():
        old = params[position]
        shape = elements(old.ty.shape)
        if not len(shape) == len(part.offsets) == len(part.extents):
            return None
        pairs = [*zip(shape, part.extents, strict=True)]
        lost += [own for own, extent in pairs if extent is not None]
        whole = [
            own if one is None else tirx.IntImm("int64", one) if isinstance(one, int) else one
            for own, one in pairs
        ]
        params[position] = typed_var(old.name, with_shape(old.ty, whole))
        wholes[old.__chandle__()] = params[position], part.offsets
    body = _with_accesses(kernel.body, wholes, lambda one, by: one + by if by else one)
    return with_parameters(kernel, params, body) if _is_told(params, lost, body) else None


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


def _is_told(params: Sequence[VarNode], lost: Sequence[Node], body: Node) -> bool:
    """Return whether something still tells the symbols that are extents in `lost`, where they are used."""
    shapes = [elements(one.ty.shape) for one in params if type(one.ty) is not ir.PrimType]
    extents = [one for shape in shapes for one in shape]
    told = {one.__chandle__() for one in (*params, *extents)}
    used: list[Node] = []
    for node in (body, *(one for one in extents if type(one) is not ir.Var)):
        visit(node, (ir.Var, used.append))
    missing = {one.__chandle__() for one in lost if type(one) is ir.Var} - told
    return missing.isdisjoint(one.__chandle__() for one in used)


# -- proof ---------------------------------------------------------------------------------------------------


def restores(given: tirx.PrimFunc, made: tirx.PrimFunc, offsets: Mapping[int, Offsets]) -> bool:
    """Return whether it is proved that `made` does with wholes what `given` does with parts of them, which
    begin at `offsets`, by the positions of the parameters.

    With each access of a whole as one of its part, so many indices before, the original must come back, and
    nothing else may be done with a whole.  It is of the type of its part but for extents, and holds all of
    the part where these are numbers, or the same at offset zero; else callers must see to that.  They must
    see to it, too, that offsets are the same wherever a tensor is given, and that no kernel is given a whole
    twice of which it stores anything: that buffers are apart is promised as it was.
    """
    params, theirs = elements(made.params), elements(given.params)
    alone = len({one.__chandle__() for one in params}) == len(params) == len(theirs)
    if not alone or not offsets.keys() <= accepts_offset(given) & accepts_offset(made):
        return False
    wholes: dict[int, tuple[VarNode, Offsets]] = {}
    parts: dict[int, tuple[VarNode, Offsets]] = {}
    for position, (old, new) in enumerate(zip(theirs, params, strict=True)):
        begin = offsets.get(position)
        if begin is not None and _holds(old, new, begin):
            wholes[new.__chandle__()], parts[old.__chandle__()] = (old, begin), (old, (0,) * len(begin))
        elif begin is not None or not new.same_as(old):
            return False
    used: list[VarNode] = []
    visit(made.body, (ir.Var, used.append))
    if not parts.keys().isdisjoint(one.__chandle__() for one in used) or promises(made) > promises(given):
        return False
    restored, original = (
        _with_accesses(made.body, wholes, _before),
        _with_accesses(given.body, parts, _before),
    )
    return bool(tvm_ffi.structural_equal(restored, original))


def _holds(part: VarNode, whole: VarNode, begin: Offsets) -> bool:
    """Return whether a buffer is like a part of it that begins at some index, and holds all of it as far as
    numbers tell.
    """
    own, extents = elements(part.ty.shape), elements(whole.ty.shape)
    if whole.same_as(part) or not len(own) == len(extents) == len(begin) or min(begin, default=0) < 0:
        return False
    for extent, by, most in zip(own, begin, extents, strict=True):
        length, room = constant_extent(extent), constant_extent(most)
        if same_extent(extent, most) and by:
            return False
        if length is not None and room is not None and by + length > room:
            return False
    return bool(tvm_ffi.structural_equal(with_shape(whole.ty, own), part.ty))


def _before(index: Node, by: int) -> Node:
    """The index that is `by` before another one, its number in one place."""
    if index.ty != _INDEX:  # a sum may not fit
        return index - by if by else index
    number = -by
    while type(index) in (prim.Add, prim.Sub) and type(index.b) is prim.IntImm:
        number += int(index.b.value) * (1 if type(index) is prim.Add else -1)
        index = index.a
    known = constant_extent(index)
    if known is not None:
        return tirx.IntImm("int64", known + number)
    return index + number if number else index
