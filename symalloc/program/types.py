"""The types of values: tensors, shapes, scalars, tuples, storages, and what is opaque."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from symalloc.size.expr import Expr, product


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: its TVM name (`float32`, `int4`, `float16x4`), bits per lane, lanes."""

    name: str
    bits: int
    lanes: int = 1

    @property
    def itemsize(self) -> int:
        """Bytes per element, rounded up to whole bytes as TVM's planner does."""
        return (self.bits * self.lanes + 7) // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorType:
    """A tensor: extents in elements (None where unknown), dtype (None where unknown), device index,
    memory scope.
    """

    shape: tuple[Expr, ...] | None
    dtype: DType | None
    ndim: int | None = None
    device: int = 0
    scope: str = "global"

    @property
    def numel(self) -> Expr | None:
        """Number of elements."""
        return None if self.shape is None else product(self.shape)

    @property
    def nbytes(self) -> Expr | None:
        """Size in bytes."""
        numel = self.numel
        return None if numel is None or self.dtype is None else numel * self.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeType:
    """A shape value: its extents (None where unknown)."""

    values: tuple[Expr, ...] | None
    ndim: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarType:
    """A scalar (R.Prim): its value as an expression where known."""

    value: Expr | None
    dtype: DType | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleType:
    """A tuple, field by field."""

    fields: tuple[Type, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageType:
    """A storage: raw bytes that tensors are placed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionType:
    """A function or closure held as a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueType:
    """A value of a kind that has no size here (R.Object, R.Any, a VM object)."""


Type: TypeAlias = TensorType | ShapeType | ScalarType | TupleType | StorageType | FunctionType | OpaqueType


def type_leaves(kind: Type, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Type]]:
    """The types in `kind` that are no tuples, in order, each with the indices that lead to it."""
    if not isinstance(kind, TupleType):
        yield path, kind
        return
    for index, field in enumerate(kind.fields):
        yield from type_leaves(field, (*path, index))


def extents_of(kind: Type) -> Iterator[Expr]:
    """The extents in a type, tuples taken apart."""
    for _, leaf in type_leaves(kind):
        if isinstance(leaf, TensorType):
            yield from leaf.shape or ()
        elif isinstance(leaf, ShapeType):
            yield from leaf.values or ()
