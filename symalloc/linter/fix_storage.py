"""Fix: grow a storage to what the tensors on it need."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from symalloc.linter.diagnostic import Fix, TextEdit
from symalloc.linter.fix_context import FixContext
from symalloc.program.model import Alias, AllocStorage, AllocTensor, Function, Kill
from symalloc.program.operands import instructions_of, variables_of
from symalloc.size.choice import maximum
from symalloc.size.condition import le
from symalloc.size.expr import Expr, ceildiv, product
from symalloc.size.notation import TVMSCRIPT

__all__ = ["grow_storage"]


def grow_storage(context: FixContext) -> Fix | None:
    """Write the size of the storage anew: the largest end of a tensor placed on it.

    None where some tensor's end is unknown, or the size is not written as a shape in the call that reserves
    it.
    """
    tensor, function = context.instruction(), context.function
    if function is None or not isinstance(tensor, AllocTensor):
        return None
    storage = context.definition(tensor.storage)
    if not isinstance(storage, AllocStorage) or storage.span is None:
        return None
    call = context.script.call_at(storage.span)
    shape = _shape_argument(call) if call else None
    if not _only_holds_tensors(context, function, storage):
        return None
    tensors = _placed_on(context, function, storage)
    needed = _needed(context, tensors)
    if shape is None or needed is None:
        return None
    size = needed if storage.dialect == "memory" else _in_elements(storage, needed)
    text = f"{ast.unparse(shape.func)}([{size.text(TVMSCRIPT)}])"
    edit = TextEdit(span=context.script.span(shape), text=text)
    return Fix(title=f"{_reason(tensors, storage)}: {text}", edits=(edit,), safe=True)


def _shape_argument(call: ast.Call) -> ast.Call | None:
    """The `R.shape([…])` that a storage's size is given as."""
    given = [call.args[0]] if call.args else [k.value for k in call.keywords if k.arg in ("size", "shape")]
    match given:
        case [ast.Call(func=ast.Attribute(attr="shape"), args=[ast.List()]) as shape]:
            return shape
    return None


def _placed_on(context: FixContext, function: Function, storage: AllocStorage) -> list[AllocTensor]:
    return [
        i
        for i in instructions_of(function.body)
        if isinstance(i, AllocTensor) and context.definition(i.storage) is storage
    ]


def _only_holds_tensors(context: FixContext, function: Function, storage: AllocStorage) -> bool:
    """Whether nothing else gets hold of the storage, which might count on its size."""
    return all(
        isinstance(i, AllocTensor | Alias | Kill)
        for i in instructions_of(function.body)
        if any(context.definition(variable) is storage for variable in variables_of(i))
    )


def _needed(context: FixContext, tensors: Sequence[AllocTensor]) -> Expr | None:
    """The largest end in bytes, without those that another is proved to reach."""
    ends: list[Expr] = []
    for tensor in tensors:
        if tensor.shape is None:
            return None
        end = tensor.offset + product(tensor.shape) * tensor.dtype.itemsize
        if not any(context.prover.implies((), le(end, other), context.domain) for other in ends):
            ends = [e for e in ends if not context.prover.implies((), le(e, end), context.domain)]
            ends.append(end)
    return maximum(*ends) if ends else None


def _in_elements(storage: AllocStorage, size: Expr) -> Expr:
    """R.vm.alloc_storage counts elements of its dtype."""
    return ceildiv(size, storage.dtype.itemsize) if storage.dtype else size


def _reason(tensors: Sequence[AllocTensor], storage: AllocStorage) -> str:
    counted = {name for t in tensors for extent in t.shape or () for name in extent.symbols}
    if storage.dialect == "memory" and counted and any(t.dtype.itemsize > 1 for t in tensors):
        names = ", ".join(sorted(counted))
        return f"storage is in bytes, {names} count{'s' * (len(counted) == 1)} elements"
    return "reserve what its tensors need"
