"""Sites of kind `index`: constant indices of operators that neither check nor wrap them."""

from __future__ import annotations

from collections.abc import Iterator

from symalloc.linter.sites.registry import instruction_sites
from symalloc.linter.sites.site import ConstraintSite, FunctionContext, Site, name_of
from symalloc.program.ir import CallOperator, ConstantTensor, Operand, Scalar
from symalloc.program.operands import tensor_type, type_of
from symalloc.program.types import ScalarType, TensorType
from symalloc.size.expr import Expr, constant, product

_UNCHECKED = {"relax.take": frozenset({"fast"})}
"""Operators that take indices, and the modes in which they use them as they are."""


@instruction_sites("index", CallOperator)
def constant_indices(context: FunctionContext, call: CallOperator) -> Iterator[Site]:
    """One site for each different constant index of `call`."""
    modes = _UNCHECKED.get(call.name)
    mode = call.attributes.get("mode", "fast")
    if modes is None or mode not in modes or len(call.arguments) < 2:
        return
    source = tensor_type(call.arguments[0])
    extent, axis = (None, "") if source is None else _extent(source, call.attributes.get("axis"))
    if extent is None:
        return
    for index in dict.fromkeys(_indices(call.arguments[1])):
        yield ConstraintSite(
            kind="index",
            instruction=call,
            quantities={"index": index, "extent": extent},
            texts={"operator": call.name, "tensor": name_of(call.arguments[0]), "axis": axis, "mode": mode},
        )


def _indices(operand: Operand) -> tuple[Expr, ...]:
    if isinstance(operand, ConstantTensor):
        return tuple(map(constant, operand.values or ()))
    if isinstance(operand, Scalar):
        return () if operand.value is None else (operand.value,)
    kind = type_of(operand)
    return (kind.value,) if isinstance(kind, ScalarType) and kind.value is not None else ()


def _extent(source: TensorType, axis: str | None) -> tuple[Expr | None, str]:
    """The extent that is indexed, and what to call its axis; without an axis the flattened tensor is
    indexed.
    """
    if source.shape is None:
        return None, ""
    try:
        number = int(axis) if axis not in (None, "None", "") else None
    except ValueError:
        return None, ""
    if number is None:
        return product(source.shape), "flattened"
    inside = -len(source.shape) <= number < len(source.shape)
    return (source.shape[number], str(number % len(source.shape))) if inside else (None, "")
