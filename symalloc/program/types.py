"""The types of values: tensors, shapes, scalars, tuples, storages, and what is opaque; and how records are
made by the thousand, one for each instruction of a module.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar, dataclass_transform

from symalloc.size.expr import Expr, product

Record = TypeVar("Record")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(*, eq: bool = True, kw_only: bool = True) -> Callable[[type[Record]], type[Record]]:
    """A dataclass with slots that nobody changes: the type checker sees to that, and Python does not.

    A frozen one takes three times as long to make.
    """
    return dataclass(slots=True, eq=eq, unsafe_hash=eq, kw_only=kw_only)


# -- collections of garbage --------------------------------------------------------------------------------


@contextmanager
def no_collections(*, acyclic: bool = False) -> Iterator[None]:
    """Runs no collections inside: a lint makes some 100,000 objects that all stay in use.

    Where nothing inside makes cycles (`acyclic`), only collections of all objects look at what was made: the
    next one would take a tenth of the time of what ran inside, and find nothing.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if acyclic and not gc.get_freeze_count():  # else what a program has frozen would thaw
                gc.freeze()
                gc.unfreeze()  # all that was frozen counts as old from here on
            gc.enable()


# -- late tuples -------------------------------------------------------------------------------------------


Item = TypeVar("Item")


class DeferredTuple(Sequence[Item]):
    """The tuple that `make` returns, which is called once; it pickles as that tuple."""

    __slots__ = ("_items", "_make")

    def __init__(self, make: Callable[[], tuple[Item, ...]]) -> None:
        self._make: Callable[[], tuple[Item, ...]] | None = make
        self._items: tuple[Item, ...] = ()

    @property
    def items(self) -> tuple[Item, ...]:
        """The items as a plain tuple."""
        if self._make is not None:
            self._items = self._make()
            self._make = None
        return self._items

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __eq__(self, other: object) -> bool:
        return self.items == (other.items if isinstance(other, DeferredTuple) else other)

    def __hash__(self) -> int:
        return hash(self.items)

    def __reduce__(self) -> tuple[type[tuple[Item, ...]], tuple[tuple[Item, ...]]]:
        return tuple, (self.items,)


ALIGNMENT = 64  # bytes; compiled kernels assume it, and ensure_zero_offset copies nothing at its multiples

MODEL_SIZES = {"vocab_size": 131072}
"""Typical extents for symbols that are sizes of a model, which no call chooses, as mlc-llm names them."""


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
        return byte_count(self.shape, self.dtype)


@lru_cache(maxsize=4096)
def byte_count(shape: tuple[Expr, ...] | None, dtype: DType | None) -> Expr | None:
    """The bytes of a tensor, as TVM's planner counts them, where its shape and element type are known."""
    return None if shape is None or dtype is None else product(shape) * dtype.itemsize


def row_dim(dim: int, shape: Sequence[Expr], other: Sequence[Expr]) -> int:
    """The dimension of a tensor that is reshaped to an`other` with the rows of `dim`; -1 for none."""
    apart = product(shape[dim + 1 :])
    alike = (at for at, one in enumerate(other) if one == shape[dim] and product(other[at + 1 :]) == apart)
    return next(alike, -1)


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


def holds_memory(kind: Type) -> bool:
    """Return whether a value of a type may hold a tensor; an opaque object may."""
    return any(not isinstance(leaf, ShapeType | ScalarType) for _, leaf in type_leaves(kind))


def extents_of(kind: Type) -> Iterator[Expr]:
    """The extents in a type, tuples taken apart."""
    for _, leaf in type_leaves(kind):
        if isinstance(leaf, TensorType):
            yield from leaf.shape or ()
        elif isinstance(leaf, ShapeType):
            yield from leaf.values or ()


def filled_in(declared: Type, known: Type) -> Type:
    """`declared` with the extents that it lacks, where `known` tells them; itself where there are none."""
    match declared, known:
        case TensorType(shape=None, ndim=ndim), TensorType(shape=shape) if shape is not None:
            filled = replace(declared, shape=shape, dtype=declared.dtype or known.dtype)
            return filled if ndim in (None, len(shape)) else declared
        case ShapeType(values=None, ndim=ndim), ShapeType(values=values) if values is not None:
            return known if ndim in (None, len(values)) else declared
        case TupleType(fields=ours), TupleType(fields=theirs) if len(ours) == len(theirs):
            fields = tuple(filled_in(a, b) for a, b in zip(ours, theirs, strict=True))
            changed = any(a is not b for a, b in zip(ours, fields, strict=True))
            return TupleType(fields=fields) if changed else declared
    return declared


def is_open(kind: Type) -> bool:
    """Return whether extents of a tensor or shape in a type are not known."""
    if type(kind) is TensorType:
        return kind.shape is None
    if type(kind) is ShapeType:
        return kind.values is None
    return type(kind) is TupleType and any(map(is_open, kind.fields))


def substituted(kind: Type, values: Mapping[str, Expr]) -> Type:
    """`kind` with its symbols replaced; what depends on a symbol that has no value is not known."""
    match kind:
        case TensorType(shape=shape) if shape is not None:
            return replace(kind, shape=_substituted(shape, values))
        case ShapeType(values=extents) if extents is not None:
            return replace(kind, values=_substituted(extents, values))
        case TupleType(fields=fields):
            return TupleType(fields=tuple(substituted(field, values) for field in fields))
    return kind


def _substituted(extents: tuple[Expr, ...], values: Mapping[str, Expr]) -> tuple[Expr, ...] | None:
    known = all(extent.symbols <= values.keys() for extent in extents)
    return tuple(extent.substitute(values) for extent in extents) if known else None
