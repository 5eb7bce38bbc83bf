"""Kernels that can write their output over an input, and the form of them that does so.

What is proved, from the text of a PrimFunc alone: the output is stored to by one statement, under loops that
bring it to each place once, and never read; the input is read by that statement alone, at the very place that
it then stores to, or by statements that are over before.  Each element is then read for the last time before
it is overwritten, in whatever order, or side by side, the loops run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.tirx.buffer import BufferType

from symalloc.relax.emit.accepts_offset import accepts_offset
from symalloc.relax.extract.kernel_body import Nest, idle_loops, stores
from symalloc.relax.ir_types import Node, VarNode, constant_extent, same_extent, visit, with_parameters

# attributes that say nothing of single parameters by their positions
_HARMLESS = frozenset({"global_symbol", "op_pattern", "s_tir", "tirx.is_scheduled", "tirx.noalias"})


def in_place(
    kernel: tirx.PrimFunc, inputs: Collection[int], output: int, *, equal: bool = True
) -> tirx.PrimFunc | None:
    """`kernel` without its parameters at `inputs`, which reads what they held from the one at `output`.

    None where it is not proved that they may share memory.  `equal`: what the caller hands over has the same
    extents in all of these places; otherwise the first extent differs, and the kernel must take any.
    """
    if not {*inputs, output} <= accepts_offset(kernel) or not _HARMLESS.issuperset(
        (kernel.attrs or {}).keys()
    ):
        return None
    params = list(kernel.params)
    target, sources = params[output], [params[index] for index in sorted(inputs)]
    kept = [param for index, param in enumerate(params) if index not in inputs]
    for source in sources:
        if not _alike(source.ty, target.ty) or not _is_over_in_time(kernel.body, source, target):
            return None
        if not (equal and _begin_alike(source.ty, target.ty)) and not _takes_any_length(source, kept):
            return None
    replaced = {source.__chandle__() for source in sources}

    def renewed(var: VarNode) -> Node:
        return target if var.__chandle__() in replaced else var

    body = tvm_ffi.structural_map(kernel.body, (ir.Var, renewed))
    if not _is_closed(body, kept, sources):
        return None
    return with_parameters(kernel, kept, body).without_attr("global_symbol")


def _alike(source: BufferType, target: BufferType) -> bool:
    """Return whether an index means the same place in both buffers: extents but for the first, and types."""
    return (
        source.dtype == target.dtype
        and source.storage_scope == target.storage_scope
        and len(source.shape) == len(target.shape)
        and all(map(same_extent, list(source.shape)[1:], list(target.shape)[1:]))
    )


def _begin_alike(source: BufferType, target: BufferType) -> bool:
    return all(map(same_extent, list(source.shape)[:1], list(target.shape)[:1]))


def _takes_any_length(source: Node, kept: Collection[Node]) -> bool:
    """Return whether the first extent of `source` is compared with nothing."""
    first = list(source.ty.shape)[:1]
    others = [extent for param in kept for extent in _bare(param)]
    return all(type(e) is ir.Var and not any(e.same_as(other) for other in others) for e in first)


def _is_over_in_time(body: Node, source: Node, target: Node) -> bool:
    """Return whether no element of `source` is read once that of `target` at its place is written."""
    found = [nest for nest in stores(body) if nest.statement.buffer.same_as(target)]
    if len(found) != 1 or _count(body, tirx.BufferStore, lambda s: s.buffer.same_as(target)) != 1:
        return False
    if _loads(body, target):
        return False
    (nest,) = found
    idle = idle_loops(nest)
    if idle is None or any(constant_extent(extent) != 1 for extent in idle):
        return False
    before = sum(_loads(statement, source) for statement in _before(body, nest.statement))
    return before + _loads_in_place(nest, source) == _loads(body, source)


def _loads_in_place(nest: Nest, source: Node) -> int:
    """Count the uses of the element of `source` at the store's place in the value stored."""
    place = list(nest.statement.indices)

    def fits(load: Node) -> bool:
        return bool(load.source.same_as(source)) and all(map(same_extent, load.indices, place))

    return _count(nest.statement.value, ir.TensorLoad, fits)


def _before(body: Node, store: Node) -> Iterator[Node]:
    """The statements that are over before the one that holds `store` begins."""
    for statement in _top(body):
        if _count(statement, tirx.BufferStore, lambda s: s.same_as(store)):
            return
        yield statement


def _top(body: Node) -> list[Node]:
    """The statements that follow each other, each run once."""
    while type(body) is s_tir.SBlockRealize and not len(body.block.iter_vars) and body.block.init is None:
        body = body.block.body
    return list(body.seq) if type(body) is tirx.SeqStmt else [body]


def _is_closed(body: Node, params: Collection[Node], dropped: Collection[Node]) -> bool:
    """Return whether no extent that only `dropped` parameters bound is still spoken of."""
    bound = {p.__chandle__() for p in params} | {e.__chandle__() for p in params for e in _bare(p)}
    lost = {e.__chandle__() for p in dropped for e in _bare(p)} - bound
    spoken = [body, *(e for p in params if type(p.ty) is BufferType for e in p.ty.shape)]
    return not any(_count(node, ir.Var, lambda v: v.__chandle__() in lost) for node in spoken)


def _bare(param: Node) -> Iterator[Node]:
    if type(param.ty) is BufferType:
        yield from (extent for extent in param.ty.shape if type(extent) is ir.Var)


def _loads(node: Node, buffer: Node) -> int:
    return _count(node, ir.TensorLoad, lambda load: load.source.same_as(buffer))


def _count(node: Node, kind: type, fits: Callable[[Node], object]) -> int:
    found = 0

    def note(one: Node) -> None:
        nonlocal found
        found += bool(fits(one))

    visit(node, (kind, note))
    return found
