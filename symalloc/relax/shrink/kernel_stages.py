"""The stages of a kernel that nobody has scheduled, in order: loops around a block with one store."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import tvm_ffi
from tvm import ir, s_tir, tirx

from symalloc.relax.donation.donate import same_places
from symalloc.relax.ir_types import (
    Node,
    VarNode,
    constant_extent,
    elements,
    nodes_in,
    same_extent,
    typed_var,
    with_variables,
)

SPATIAL = 0  # tirx.IterVar.DataPar


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A block that stores `value`, over the variables of its `axes`, to `place` of the buffer `target`, and
    the loops around it, from the outside in.

    It `reduces` where it stores to an element more than once.  `loaded` is all that it loads, its bounds and
    what it sets elements to at first among it.
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
    loaded: Sequence[Node]

    @property
    def bound(self) -> Iterator[tuple[Node, Node]]:
        """The axes with what they are bound to."""
        return zip(elements(self.block.iter_vars), elements(self.realized.iter_values), strict=True)

    @property
    def is_full(self) -> bool:
        """True if it stores to each element of its buffer, whatever was there."""
        loops = {loop.loop_var.__chandle__(): loop for loop in self.loops}
        used = [value.__chandle__() for _, value in self.bound if value.__chandle__() in loops]
        spatial = [(axis.var, value) for axis, value in self.bound if axis.iter_type == SPATIAL]
        if len(used) != len(loops) or len({*used}) != len(loops) or len(spatial) != len(self.place):
            return False

        def covers(value: Node, extent: Node) -> bool:
            loop = loops.get(value.__chandle__())
            if loop is None:
                return constant_extent(value) == 0 and constant_extent(extent) == 1
            return constant_extent(loop.min) == 0 and same_extent(loop.extent, extent)

        whole = zip(spatial, self.place, elements(self.target.ty.shape), strict=True)
        return all(axis.same_as(at) and covers(value, extent) for (axis, value), at, extent in whole)

    def loads(self, buffer: VarNode | None = None) -> list[Node]:
        """Return the loads of a buffer, or of all."""
        return [one for one in self.loaded if buffer is None or one.source.same_as(buffer)]


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
    return stages_in(kernel.body)


@lru_cache(maxsize=256)  # each step asks for them
def stages_in(root: Node) -> tuple[Stage, ...] | None:
    """The stages of the kernel with this body."""
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
    loops, whole = list[Node](), statement
    while type(statement) is tirx.For and not (statement.annotations or statement.step):
        if statement.kind != tirx.ForKind.SERIAL:
            return None
        loops.append(statement)
        statement = statement.body
    if type(statement) is not s_tir.SBlockRealize or constant_extent(statement.predicate) != 1:
        return None
    block = statement.block
    if type(block.body) is not tirx.BufferStore or block.alloc_buffers or block.match_buffers:
        return None
    start, target = block.init, block.body.buffer
    elsewhere = start is not None and not (type(start) is tirx.BufferStore and start.buffer.same_as(target))
    if elsewhere or not all(map(_is_pure, nodes_in([whole], ir.Call))):
        return None
    axes = elements(block.iter_vars)
    stage = Stage(
        name=str(block.name_hint),
        realized=statement,
        block=block,
        loops=tuple(loops),
        target=target,
        place=elements(block.body.indices),
        value=block.body.value,
        axes=tuple(axis.var for axis in axes),
        loaded=nodes_in([whole], ir.TensorLoad),
        reduces=block.init is not None or any(axis.iter_type != SPATIAL for axis in axes),
    )
    last = [load for load in nodes_in([block.body], ir.TensorLoad) if load.source.same_as(target)]
    if len(stage.loads(target)) > len(last):
        return None  # what was there before tells what it begins with
    some = typed_var("some", stage.value.ty)
    places = _statement(stage, target, some, None if start is None else some)
    return None if nodes_in([places], ir.TensorLoad) else stage


def _is_pure(call: Node) -> bool:
    """Return whether a call computes a value from those of its arguments, and does nothing else."""
    kind = call.op.get_attr("TCallEffectKind") if type(call.op) is ir.Op else None
    return kind in (0, 1) and call.op.name not in ("tirx.address_of", "tirx.buffer_data")


def same_results(original: tirx.PrimFunc, rewritten: tirx.PrimFunc) -> bool:
    """Return whether it is proved that two kernels store the same to each parameter."""
    before, after = stages_of(original), stages_of(rewritten)
    params, theirs = elements(original.params), elements(rewritten.params)
    if before is None or after is None or len(params) != len(theirs):
        return False
    if not all(map(ir.Var.same_as, params, theirs)) or not promises(original):
        return False
    names = [stage.name for stage in after]
    kept = [stage for stage in before if stage.name in names]
    if [stage.name for stage in kept] != names:
        return False
    made: dict[str, VarNode] = {}
    one, other = _StageReader(made), _StageReader(made)
    for stage in before:
        if stage in kept:
            form, stated = one.read(stage), other.read(after[kept.index(stage)])
            if form is None or stated is None or not tvm_ffi.structural_equal(form, stated):
                return False
        elif not one.write_out(stage):
            return False
    return all(one.last(param) == other.last(param) for param in params)


def promises(kernel: tirx.PrimFunc) -> bool:
    """Return whether a kernel is compiled as if no two of its buffers overlap."""
    return bool(kernel.attrs and kernel.attrs.get("tirx.noalias"))


@dataclass(slots=True)
class _StageReader:
    """Reads the stages of a kernel in order.

    `made` holds a buffer for what each stage stores, by its name; `stored` the name of the stage that stored
    to a buffer last, by its address, or the stage itself where it is written out, with its value.
    """

    made: dict[str, VarNode]
    stored: dict[int, str | tuple[Stage, Node]] = field(default_factory=dict)

    def last(self, buffer: VarNode) -> str | tuple[Stage, Node] | None:
        """Return the stage that stored to a buffer last; None where none did."""
        return self.stored.get(buffer.__chandle__())

    def read(self, stage: Stage) -> Node | None:
        """The stage as a statement on `made` alone; None where it is not told what it loads, or keeps."""
        name, target = stage.name, stage.target
        new = self.made.setdefault(name, typed_var(name, target.ty))
        value = self._value(stage, stage.value, new)
        init = None if stage.block.init is None else stage.block.init.value
        start = None if init is None else self._value(stage, init, new)
        alike = tvm_ffi.structural_equal(new.ty, target.ty)
        if value is None or (start is None) != (init is None) or not alike:
            return None
        adds_to_old = stage.reduces and init is None
        if (adds_to_old or not stage.is_full) and self.last(target) is not None:
            return None
        self.stored[target.__chandle__()] = name
        return _statement(stage, new, value, start)

    def write_out(self, stage: Stage) -> bool:
        """Take note of a stage that stands in those that load what it stores; False where it cannot."""
        value = self._value(stage, stage.value, None)
        if value is None or stage.reduces or not stage.is_full:
            return False
        self.stored[stage.target.__chandle__()] = stage, value
        return True

    def _value(self, stage: Stage, value: Node, new: VarNode | None) -> Node | None:
        """A value with each load replaced by one of what its stage stored; `new` for what this one does."""
        unclear: list[Node] = []

        def replaced(load: Node) -> Node:
            source, indices = load.source, elements(load.indices)
            if source.same_as(stage.target):
                if not all(map(same_extent, indices, stage.place)):
                    unclear.append(load)
                elif stage.reduces and new is not None:
                    return tirx.BufferLoad(new, indices)
            match self.last(source):
                case str() as name:
                    return tirx.BufferLoad(self.made[name], indices)
                case (inner, inner_value):
                    return with_variables(inner_value, [*zip(inner.axes, indices, strict=True)])
            return load

        found = tvm_ffi.structural_map(value, (ir.TensorLoad, replaced))
        return None if unclear else found


def _statement(stage: Stage, target: VarNode, value: Node, init: Node | None) -> Node:
    """A stage that stores other values, with nothing said but what it does."""
    place, block = stage.place, stage.block
    start = None if init is None else tirx.BufferStore(target, init, block.init.indices)
    body = s_tir.SBlock(block.iter_vars, [], [], "", tirx.BufferStore(target, value, place), start)
    found: Node = s_tir.SBlockRealize(stage.realized.iter_values, stage.realized.predicate, body)
    for loop in reversed(stage.loops):
        found = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, found)
    return found
