"""The proof that a rewritten kernel computes what the original computes, in the same order.

It looks at both texts alone, and knows nothing of how one was made from the other.  Stages are compared one
by one, those that are gone written into the stages that load what they stored.  Each load is replaced by one
of the stage that stored to its buffer last: so it makes no difference in which buffer that was, and all the
difference whether something else was stored to it in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import tvm_ffi
from tvm import ir, s_tir, tirx

from symalloc.relax.ir_types import Node, VarNode, elements, same_extent, typed_var, with_variables
from symalloc.relax.shrink.kernel_stages import Stage, stages_of

_NOALIAS = "tirx.noalias"


def same_results(original: tirx.PrimFunc, rewritten: tirx.PrimFunc) -> bool:
    """Return whether it is proved that two kernels store the same to each parameter."""
    before, after = stages_of(original), stages_of(rewritten)
    params, theirs = elements(original.params), elements(rewritten.params)
    if before is None or after is None or len(params) != len(theirs):
        return False
    if not all(map(ir.Var.same_as, params, theirs)) or (promises(rewritten) and not promises(original)):
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
    return bool(kernel.attrs and kernel.attrs.get(_NOALIAS))


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
        if value is None or (start is None) != (init is None) or not _same_kind(new, target):
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


def _same_kind(one: VarNode, other: VarNode) -> bool:
    return bool(tvm_ffi.structural_equal(one.ty, other.ty))


def _statement(stage: Stage, target: VarNode, value: Node, init: Node | None) -> Node:
    """A stage that stores other values, with nothing said but what it does."""
    place, block = stage.place, stage.block
    start = None if init is None else tirx.BufferStore(target, init, block.init.indices)
    body = s_tir.SBlock(block.iter_vars, [], [], "", tirx.BufferStore(target, value, place), start)
    found: Node = s_tir.SBlockRealize(stage.realized.iter_values, stage.realized.predicate, body)
    for loop in reversed(stage.loops):
        found = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, found)
    return found
