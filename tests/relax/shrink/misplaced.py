"""Kernels whose accesses are planted somewhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import tvm_ffi
from tvm import ir, tirx
from tvm.tirx.buffer import BufferType

from symalloc.relax.ir_types import Node, elements, visit, with_parameters

__all__ = ["faults"]

KINDS = (ir.TensorLoad, tirx.BufferStore, ir.TensorRegion)


def faults(made: tirx.PrimFunc, kinds: Sequence[type[Node]] = KINDS) -> Iterator[tuple[str, tirx.PrimFunc]]:
    """Each access of a finished kernel at a wrong index, or of another buffer."""
    params = elements(made.params)
    buffers = [one for one in params if type(one.ty) is BufferType]
    accesses: list[Node] = []
    visit(made.body, *((kind, accesses.append) for kind in kinds))
    for wrong in accesses:
        for fault, right in misplaced(wrong, buffers):
            rules = tuple((kind, partial(instead, wrong, right)) for kind in KINDS)
            yield fault, with_parameters(made, params, tvm_ffi.structural_map(made.body, rules))


def instead(wrong: Node, right: Node, node: Node) -> Node:
    return right if node.same_as(wrong) else node


def misplaced(access: Node, params: Sequence[tirx.Var]) -> Iterator[tuple[str, Node]]:
    """An access somewhere else."""
    buffer, indices = place(access)
    for axis, index in enumerate(indices):
        for by in (1, -1):
            moved = [*indices[:axis], index + by, *indices[axis + 1 :]]
            yield f"an index {by:+}", rebuilt(access, buffer, moved)
    for axis, index in enumerate(indices[1:]):
        if not index.same_as(indices[axis]):
            turned = [*indices[:axis], index, indices[axis], *indices[axis + 2 :]]
            yield "two indices exchanged", rebuilt(access, buffer, turned)
    for other in params:
        if not other.same_as(buffer) and len(other.ty.shape) == len(indices):
            yield "another buffer", rebuilt(access, other, indices)


def place(access: Node) -> tuple[Node, Sequence[Node]]:
    if isinstance(access, ir.TensorRegion):
        return access.source, [one.min for one in elements(access.region)]
    buffer = access.buffer if isinstance(access, tirx.BufferStore) else access.source
    return buffer, elements(access.indices)


def rebuilt(access: Node, buffer: Node, indices: Sequence[Node]) -> Node:
    if isinstance(access, ir.TensorRegion):
        extents = [one.extent for one in elements(access.region)]
        ranges = [ir.Range.from_min_extent(*pair) for pair in zip(indices, extents, strict=True)]
        return tirx.BufferRegion(buffer, ranges)
    if isinstance(access, tirx.BufferStore):
        return tirx.BufferStore(buffer, access.value, indices)
    return tirx.BufferLoad(buffer, indices)
