"""Kernels' own buffers as parameters: callers allocate them, so that a plan places them like any tensor.

TVM takes such a buffer from a pool of the calling thread, which grows and never shrinks, and lies in no plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

import msgspec
import tvm
from tvm import ir, relax, s_tir, tirx
from tvm.ir import Call, GlobalVar, PrimType
from tvm.tirx.buffer import BufferType

from symalloc.relax.emit.emit_module import allocated
from symalloc.relax.emit.kernel_offsets import accepts_offset
from symalloc.relax.ir_types import (
    BindingNode,
    Node,
    VarNode,
    bound,
    constant_extent,
    elements,
    typed_var,
    visit,
    with_arguments,
    with_parameters,
    with_variables,
)
from symalloc.relax.rewrite import ModuleDraft, map_bindings, without
from symalloc.relax.shrink.kernel_stages import without_buffers
from symalloc.relax.shrink.shrink_kernels import ShrunkModule

_ON_STACK = 1024  # bytes: TVM takes what is known to be smaller from the stack
_AS_THEY_ARE = ("tirx.is_scheduled", "global_symbol")  # kernels that others can call by name, too
_SIZE = PrimType("int64")


def plan_workspaces(shrunk: ShrunkModule) -> ShrunkModule:
    """`shrunk`, as CallTIRRewrite leaves it, where callers allocate what its kernels still allocated.

    Kernels that are scheduled or public stay as they are, and so do buffers of a size that some caller does
    not know.
    """
    given, kernels = shrunk.module.functions, dict(shrunk.kernels)
    named = {variable.name_hint: variable for variable in given}
    lifted = {name: one for name in kernels if (one := _lifted(given[named[name]])) is not None}
    while lifted:
        module = _allocating(shrunk.module, lifted)
        left = _mentioned(module) & {named[name].__chandle__() for name in lifted}
        if not left:
            for name, one in lifted.items():
                buffers = tuple(buffer.name for buffer in one.buffers)
                why = {buffer: why for buffer, why in kernels[name].left.items() if buffer not in buffers}
                kernels[name] = msgspec.structs.replace(kernels[name], planned=buffers, left=why)
            return replace(shrunk, module=module, kernels=kernels)
        lifted = {name: one for name, one in lifted.items() if named[name].__chandle__() not in left}
    return shrunk


def _allocating(module: tvm.IRModule, lifted: Mapping[str, _Lifted]) -> tvm.IRModule:
    """`module` with these kernels, whose buffers those allocate that know how large they are."""
    draft = ModuleDraft(without(module, lifted))
    placed = {name: (draft.add(name, one.kernel), one) for name, one in lifted.items()}
    devices = elements(module.global_infos.get("vdevice", ()))

    def called(_: str, binding: BindingNode) -> list[relax.Binding] | None:
        value = binding.value
        if type(value) is not Call or getattr(value.op, "name_hint", None) not in placed:
            return None
        kernel, one = placed[value.op.name_hint]
        arguments = elements(value.args)
        device = next((a.ty.vdevice for a in arguments if type(a.ty) is relax.TensorType), None)
        made = []
        for buffer, extents in zip(one.buffers, one.shapes(arguments) or (), strict=False):
            kind = relax.TensorType(relax.ShapeExpr(extents), str(buffer.ty.dtype), vdevice=device)
            made.append(allocated(typed_var(f"{kernel.name_hint}_{buffer.name}", kind), devices))
        taken = [*arguments, *(each.var for each in made)]
        return [*made, bound(binding.var, with_arguments(value, taken, kernel))] if made else None

    return map_bindings(draft.finished(), called)


def _mentioned(module: tvm.IRModule) -> set[int]:
    """The addresses of the variables of functions that functions of a module use."""
    found: list[GlobalVar] = []
    for function in module.functions.values():
        if isinstance(function, (relax.Function, tirx.PrimFunc)):
            visit(function.body, (GlobalVar, found.append))
    return {one.__chandle__() for one in found}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lifted:
    """A kernel with the parameters `buffers` behind those that it was `given`."""

    kernel: tirx.PrimFunc
    given: Sequence[VarNode]
    buffers: Sequence[VarNode]

    def shapes(self, arguments: Sequence[Node]) -> list[list[Node]] | None:
        """The extents of the buffers in a call; None where its arguments do not tell them."""
        known = list(_symbols(self.given, arguments))
        names = {symbol.__chandle__() for symbol, _ in known}
        extents = [elements(buffer.ty.shape) for buffer in self.buffers]
        used: list[VarNode] = []
        for extent in chain.from_iterable(extents):
            visit(extent, (ir.Var, used.append))
        if not names.issuperset(one.__chandle__() for one in used):
            return None
        return [[_extent(with_variables(extent, known)) for extent in shape] for shape in extents]


def _symbols(params: Sequence[VarNode], arguments: Sequence[Node]) -> Iterator[tuple[VarNode, Node]]:
    """The symbols that a call binds, with their values."""
    for param, argument in zip(params, arguments, strict=False):
        if type(param.ty) is not BufferType:
            yield param, argument
            continue
        shape: Node | None = getattr(argument.ty, "shape", None)
        given = elements(shape.values) if shape is not None and type(shape) is relax.ShapeExpr else ()
        for extent, actual in zip(elements(param.ty.shape), given, strict=False):
            if type(extent) is ir.Var:
                yield extent, actual


def _extent(value: Node) -> Node:
    """An extent as shapes have them: a number where no symbol is left in it."""
    if type(value) is ir.Var:
        return value
    plain = tvm.sym.Analyzer().simplify(value)
    number = constant_extent(plain)
    return plain if number is None else tirx.IntImm("int64", number)


# -- kernels -------------------------------------------------------------------------------------------------


def _lifted(kernel: tirx.PrimFunc) -> _Lifted | None:
    """`kernel` with those of its own buffers as parameters that it takes from the pool outside of loops; None
    where there are none, or it hands them on.
    """
    root, given = kernel.body, elements(kernel.params)
    if type(root) is not s_tir.SBlockRealize or any(one in (kernel.attrs or {}) for one in _AS_THEY_ARE):
        return None
    block = root.block
    own = elements(block.alloc_buffers)
    outside = _used_in_several_parts(block.body) if own else frozenset()
    buffers = [one for one in own if one.__chandle__() in outside and _is_pooled(one)]
    if not buffers or block.init is not None or len(block.match_buffers) or _uses_threads(root):
        return None
    body = without_buffers(root, {one.__chandle__() for one in buffers})
    made = with_parameters(kernel, [*given, *buffers], body)
    if not accepts_offset(made).issuperset(range(len(given), len(given) + len(buffers))):
        return None
    return _Lifted(kernel=made, given=given, buffers=buffers)


def _uses_threads(body: Node) -> bool:
    """Return whether a kernel is one of a GPU."""
    kinds: set[int] = set()
    visit(body, (tirx.For, lambda loop: kinds.add(loop.kind)))
    return tirx.ForKind.THREAD_BINDING in kinds


def _used_in_several_parts(body: Node) -> frozenset[int]:
    """The addresses of the variables that several of the statements of `body` mention, so that no loop holds
    all that is done with them.
    """
    found = Counter[int]()
    for part in elements(body.seq) if type(body) is tirx.SeqStmt else ():
        used: list[VarNode] = []
        visit(part, (ir.Var, used.append))
        found.update({one.__chandle__() for one in used})
    return frozenset(handle for handle, count in found.items() if count > 1)


def _is_pooled(buffer: VarNode) -> bool:
    """Return whether TVM takes memory for a buffer from its pool, of a size that a caller can compute."""
    kind = buffer.ty
    extents = elements(kind.shape)
    if kind.storage_scope not in ("", "global"):
        return False
    unknown = [one for one in extents if constant_extent(one) is None]
    if not unknown:
        return prod(constant_extent(one) or 0 for one in extents) * kind.dtype.dtype.itemsize >= _ON_STACK
    return all(one.ty == _SIZE for one in unknown)
