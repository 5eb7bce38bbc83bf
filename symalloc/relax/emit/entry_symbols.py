"""TVM's symbolic variables by the names that the extracted form gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tvm import relax

from symalloc.program.model import Function
from symalloc.program.types import ScalarType, ShapeType, TensorType, TupleType, Type
from symalloc.relax.ir_types import Node
from symalloc.size.expr import Expr


def entry_symbols(function: relax.Function, seen: Function) -> Mapping[str, Node]:
    """The symbolic variables that the parameters of `function` define, by the names that `seen` gives them.

    Variables may share a name in TVM, so they are paired by where they stand in the parameters' types.
    """
    found: dict[str, Node] = {}
    for param, var in zip(function.params, seen.params, strict=True):
        found.update(paired(param.ty, var.type))
        if isinstance(var.type, ScalarType) and var.type.value is not None:
            name = var.type.value.as_symbol
            if name is not None:
                found[name] = param  # a scalar is its own symbol
    return found


def paired(theirs: Node, ours: Type) -> Iterator[tuple[str, Node]]:
    """The names and variables that stand alone as an extent in a type, in both its forms."""
    match ours:
        case TupleType(fields=fields):
            for one, other in zip(theirs.fields, fields, strict=True):
                yield from paired(one, other)
        case TensorType(shape=extents) if extents is not None:
            yield from _paired_extents(theirs.shape.values, extents)
        case ShapeType(values=extents) if extents is not None:
            yield from _paired_extents(theirs.values, extents)


def _paired_extents(theirs: Node, ours: tuple[Expr, ...]) -> Iterator[tuple[str, Node]]:
    for one, other in zip(theirs, ours, strict=True):
        name = other.as_symbol
        if name is not None and isinstance(one, relax.Var):
            yield name, one
