"""The stages of a kernel that nobody has scheduled, in order: loops around a block with one store."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tvm import ir, s_tir, tirx

from symalloc.relax.donation.donate import same_places
from symalloc.relax.ir_types import Node, VarNode, constant_extent, elements, same_extent, visit

_SPATIAL = 0  # tirx.IterVar.DataPar


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A block that stores `value`, over the variables of its `axes`, to `place` of the buffer `target`, and
    the loops around it, from the outside in.

    It `reduces` where it stores to an element more than once.
    """

    name: str
    realized: Node
    block: Node
    loops: tuple[Node, ...]
    target: VarNode
    place: tuple[Node, ...]
    value: Node
    axes: tuple[VarNode, ...]
    reduces: bool

    @property
    def is_full(self) -> bool:
        """True if it stores to each element of its buffer, whatever was there."""
        loops = {loop.loop_var.__chandle__(): loop for loop in self.loops}
        values = elements(self.realized.iter_values)
        used = [value.__chandle__() for value in values if value.__chandle__() in loops]
        pairs = zip(elements(self.block.iter_vars), values, strict=True)
        spatial = [(axis.var, value) for axis, value in pairs if axis.iter_type == _SPATIAL]
        if len(used) != len(loops) or len({*used}) != len(loops) or len(spatial) != len(self.place):
            return False

        def covers(value: Node, extent: Node) -> bool:
            loop = loops.get(value.__chandle__())
            if loop is None:
                return constant_extent(value) == 0 and constant_extent(extent) == 1
            return constant_extent(loop.min) == 0 and loop.step is None and same_extent(loop.extent, extent)

        whole = zip(spatial, self.place, elements(self.target.ty.shape), strict=True)
        return all(axis.same_as(at) and covers(value, extent) for (axis, value), at, extent in whole)

    def loads(self, buffer: VarNode | None = None) -> list[Node]:
        """Return the loads of a buffer, or of all."""
        found: list[Node] = []
        visit(self.block.body, (ir.TensorLoad, found.append))
        return [one for one in found if buffer is None or one.source.same_as(buffer)]


def alike(one: VarNode, other: VarNode) -> bool:
    """Return whether two buffers take the same bytes, and an index means the same place in both."""
    rows = [elements(kind.shape)[:1] for kind in (one.ty, other.ty)]
    plain = not len(one.ty.strides) and not len(other.ty.strides)
    return plain and same_places(one.ty, other.ty) and all(map(same_extent, *rows))


def without_buffers(root: Node, gone: Collection[int]) -> Node:
    """The outermost block of a kernel without those of its own buffers that have these addresses."""
    block = root.block
    kept = [one for one in elements(block.alloc_buffers) if one.__chandle__() not in gone]
    parts = block.reads, block.writes, block.name_hint, block.body
    made = s_tir.SBlock([], *parts, alloc_buffers=kept, annotations=block.annotations)
    return s_tir.SBlockRealize([], root.predicate, made)


def stages_of(kernel: tirx.PrimFunc) -> tuple[Stage, ...] | None:
    """The stages of a kernel in order, each of another name; None where it is made of anything else."""
    root = kernel.body
    if type(root) is not s_tir.SBlockRealize or elements(root.block.iter_vars):
        return None
    body = root.block.body
    if root.block.init is not None or elements(root.block.match_buffers):
        return None
    found = [_stage(part) for part in (elements(body.seq) if type(body) is tirx.SeqStmt else (body,))]
    stages = tuple(one for one in found if one is not None)
    names = {root.block.name_hint, *(stage.name for stage in stages)}
    return stages if len(stages) == len(found) == len(names) - 1 else None


def _stage(statement: Node) -> Stage | None:
    loops: list[Node] = []
    while type(statement) is tirx.For and statement.kind == tirx.ForKind.SERIAL and not statement.annotations:
        loops.append(statement)
        statement = statement.body
    if type(statement) is not s_tir.SBlockRealize or constant_extent(statement.predicate) != 1:
        return None
    block = statement.block
    if type(block.body) is not tirx.BufferStore or block.alloc_buffers or block.match_buffers:
        return None
    if block.init is not None and type(block.init) is not tirx.BufferStore:
        return None
    by_data: list[Node] = []
    for index in elements(block.body.indices):
        visit(index, (ir.TensorLoad, by_data.append))
    axes = elements(block.iter_vars)
    stage = Stage(
        name=str(block.name_hint),
        realized=statement,
        block=block,
        loops=tuple(loops),
        target=block.body.buffer,
        place=elements(block.body.indices),
        value=block.body.value,
        axes=tuple(axis.var for axis in axes),
        reduces=any(axis.iter_type != _SPATIAL for axis in axes),
    )
    return None if by_data else stage
