"""StorageShapes: a storage that one tensor fills is reserved by the shape of that tensor.

The virtual machine makes each shape by a call, and the bytes of a storage are a shape of one extent.  The
tensor's own shape and element type say as much, and are needed anyway.  Stands behind LowerRuntimeBuiltin and
in front of VMShapeLower.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import tvm
from tvm import relax
from tvm.ir import Call, Op
from tvm.tirx import IntImm
from tvm.tirx.analysis import undefined_vars

from symalloc.program.types import ALIGNMENT
from symalloc.relax.extract.symbols import Symbols
from symalloc.relax.extract.tir_form import NotASizeError, TirForm
from symalloc.relax.ir_types import (
    BindingNode,
    CallNode,
    Node,
    bindings_in,
    bound,
    elements,
    typed_call,
)
from symalloc.relax.rewrite import BindingRewriter, map_functions, with_body
from symalloc.size.expr import Expr, product, round_up

_ALLOC_STORAGE = Op.get("relax.vm.alloc_storage")  # (extents, device, element type, scope)
_ALLOC_TENSOR = Op.get("relax.vm.alloc_tensor")  # (storage, offset, shape, element type, device)
_KILL = Op.get("relax.vm.kill_object")


@tvm.transform.module_pass(opt_level=0, name="StorageShapes")
class StorageShapes:
    """Reserves a storage by the shape of the tensor that fills it, where that is seen.

    What rounded it up to the alignment is not reserved then, where no other tensor lies in the storage.
    """

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with fewer shapes to make; its tensors are the same."""
        return map_functions(module, lambda _, function: _reshaped(function))


def _reshaped(function: relax.Function) -> relax.Function | None:
    if not isinstance(function.body, relax.SeqExpr):
        return None
    reserved = _reserved(function.body)
    return with_body(function, _Writer(reserved).sequence(function.body)) if reserved else None


class _Writer(BindingRewriter):
    """Writes one function; `reserved` holds new calls by the addresses of the variables they are bound to."""

    def __init__(self, reserved: Mapping[int, CallNode]) -> None:
        super().__init__()
        self.reserved = reserved

    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        call = self.reserved.get(binding.var.__chandle__())
        return super().rewrite(binding) if call is None else [bound(binding.var, call)]


@dataclass(frozen=True, slots=True)
class _Storage:
    """A storage of `size` bytes: the call that reserves it, and the tensors on it."""

    call: CallNode
    size: Expr
    tensors: list[CallNode] = field(default_factory=list)


def _reserved(body: relax.SeqExpr) -> Mapping[int, CallNode]:
    """The calls that reserve storages by the shapes of tensors, by the addresses of their variables."""
    sizes, found, others = _Sizes(), dict[int, _Storage](), set[int]()
    for binding in bindings_in(body):
        value = binding.value
        op = value.op if type(value) is Call else None
        if op == _ALLOC_STORAGE:
            size = sizes.of_storage(value)
            if size is not None:
                found[binding.var.__chandle__()] = _Storage(value, size)
        elif op == _ALLOC_TENSOR:
            storage = found.get(value.args[0].__chandle__())
            if storage is not None:
                storage.tensors.append(value)
        elif found and op != _KILL:
            others.update(node.__chandle__() for node in _operands(value))
    others.update(node.__chandle__() for node in _operands(body.body))
    made = ((var, _call(storage, sizes, alone=var not in others)) for var, storage in found.items())
    return {var: call for var, call in made if call is not None}


def _operands(value: Node) -> Iterator[Node]:
    """The nodes that a value may hand on: arguments and fields, and results of branches."""
    kind = type(value)
    if kind is relax.If:
        yield from _operands(value.true_branch.body)
        yield from _operands(value.false_branch.body)
    elif kind is Call or kind is relax.Tuple:
        for operand in elements(value.args if kind is Call else value.fields):
            yield from _operands(operand)
    else:
        yield value


def _call(storage: _Storage, sizes: _Sizes, *, alone: bool) -> CallNode | None:
    """The call that reserves the storage by the shape of a tensor; None where none fills it."""
    if storage.size.as_constant is not None:
        return None  # its shape is no call
    filled = [(tensor, sizes.of_tensor(tensor)) for tensor in storage.tensors]
    exact = [tensor for tensor, size in filled if size == storage.size]
    if not exact and alone and len({size for _, size in filled}) == 1:
        size = filled[0][1]
        exact = [filled[0][0]] if size is not None and round_up(size, ALIGNMENT) == storage.size else []
    if not exact:
        return None
    extents, device, _, scope = elements(storage.call.args)
    _, _, shape, dtype, _ = elements(exact[0].args)
    if not _variables(shape) <= _variables(extents):
        return None  # one may have no value yet
    return typed_call(_ALLOC_STORAGE, [shape, device, dtype, scope], storage.call.ty)


def _variables(shape: Node) -> frozenset[int]:
    """The variables in a shape, by address."""
    found = (undefined_vars(extent) for extent in elements(shape.values))
    return frozenset(var.__chandle__() for some in found for var in some)


class _Sizes:
    """The bytes of storages and of tensors at offset 0 in one function, as expressions."""

    def __init__(self) -> None:
        self.form = TirForm(Symbols().resolve)

    def of_storage(self, call: CallNode) -> Expr | None:
        """The bytes of a storage of global memory; None where they are not seen."""
        extents, _, dtype, scope = elements(call.args)
        return self._bytes(extents, dtype) if scope.value in ("", "global") else None

    def of_tensor(self, call: CallNode) -> Expr | None:
        """The bytes of a tensor; None where they are not seen, or it lies elsewhere than at the start."""
        _, offset, shape, dtype, _ = elements(call.args)
        return self._bytes(shape, dtype) if type(offset) is IntImm and offset.value == 0 else None

    def _bytes(self, shape: Node, dtype: Node) -> Expr | None:
        bits = dtype.value.bits * dtype.value.lanes
        if type(shape) is not relax.ShapeExpr or bits % 8:
            return None
        try:
            return product(map(self.form.expr, elements(shape.values))) * (bits // 8)
        except NotASizeError:
            return None
