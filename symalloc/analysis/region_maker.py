"""Makes the regions of a function, and what tells how they lie in each other."""

from __future__ import annotations

from functools import lru_cache
from itertools import zip_longest
from typing import Any

from symalloc.analysis.regions import (
    EMPTY,
    AbstractValue,
    Pointees,
    Region,
    RegionKind,
    TuplePointees,
    members,
    pointees_of,
    targets,
)
from symalloc.program.model import Instruction, Var
from symalloc.program.types import (
    DType,
    FunctionType,
    ScalarType,
    ShapeType,
    StorageType,
    TensorType,
    TupleType,
    Type,
)
from symalloc.size.expr import Expr
from symalloc.size.operations import product

_PLACES_APART = 64
"""In how many regions a part is told apart from the whole."""


@lru_cache(maxsize=4096)
def byte_count(shape: tuple[Expr, ...], dtype: DType) -> Expr:
    """The bytes of a tensor, as TVM's planner counts them."""
    return product(shape) * dtype.itemsize


class RegionMaker:
    """Keeps the regions made so far; `of_kind` holds the set of those of each kind, `made` those that the
    current step makes and fills.
    """

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.of_kind = dict.fromkeys(RegionKind, 0)
        self.defs = 0

    def add(self, kind: RegionKind, var: Var, *, parent: Region | None = None, **fields: Any) -> int:
        """A new region; returns its bit."""
        index = len(self.regions)
        root, above = (index, None) if parent is None else (parent.root, parent.number)
        self.regions.append(
            Region(number=index, kind=kind, name=var.name, var=var, root=root, parent=above, **fields)
        )
        self.of_kind[kind] |= 1 << index
        return 1 << index

    def fresh(
        self, kind: Type, var: Var, instruction: Instruction | None, *, external: bool = False
    ) -> AbstractValue:
        """New memory for a value of type `kind`, one region a leaf."""
        if isinstance(kind, TupleType):
            return TuplePointees(
                tuple(self.fresh(field, var, instruction, external=external) for field in kind.fields)
            )
        if isinstance(kind, ShapeType | ScalarType | FunctionType):
            return EMPTY
        if isinstance(kind, StorageType):
            return Pointees(self.add(RegionKind.STORAGE, var, instruction=instruction, external=True), 0)
        what = RegionKind.PARAMETER if external else RegionKind.FRESH
        nbytes = known_bytes(kind.shape, kind.dtype) if isinstance(kind, TensorType) else None
        bit = self.add(what, var, instruction=instruction, external=external, nbytes=nbytes)
        if not external:
            self.defs |= bit
        return Pointees(bit, 0)

    def placed(
        self,
        kind: RegionKind,
        source: AbstractValue,
        instruction: Instruction,
        offset: Expr | None,
        nbytes: Expr | None,
    ) -> tuple[int, int]:
        """A region inside each region that `source` may be: (must, may).

        Where these are very many, `source` itself stands for its part.
        """
        must = may = 0
        found = tuple(targets(self.regions, *pointees_of(source)))
        if len(found) > _PLACES_APART:
            return pointees_of(source)
        for target in found:
            parent = self.regions[target.region]
            bit = self.add(
                kind,
                instruction.var,
                parent=parent,
                instruction=instruction,
                external=parent.external,
                offset=sum_of(parent.offset, offset),
                nbytes=nbytes,
                path=target.path,
            )
            must, may = (must | bit, may) if target.certain else (must, may | bit)
        return must, may

    def either(
        self, then: AbstractValue, other: AbstractValue, choice: int, instruction: Instruction
    ) -> AbstractValue:
        """The value of an If."""
        if isinstance(then, TuplePointees) and isinstance(other, TuplePointees):
            pairs = zip_longest(then.items, other.items, fillvalue=EMPTY)
            return TuplePointees(tuple(self.either(a, b, choice, instruction) for a, b in pairs))
        a, b = collapsed(then), collapsed(other)
        offset = a.offset if a.offset == b.offset else None
        if (a.must, a.may) == (b.must, b.may):
            return Pointees(a.must, a.may, offset)
        bit = self.add(
            RegionKind.PHI, instruction.var, instruction=instruction, sources=(a, b), branch=choice
        )
        return Pointees(bit, 0, offset)

    def no_tensors(self, value: AbstractValue) -> AbstractValue:
        """What of `value` may be a storage, choices left as they are."""
        must, may = pointees_of(value)
        tensors = sum(1 << i for i in members(must | may) if _is_tensor(self.regions[i]))
        return Pointees(must & ~tensors, may & ~tensors) if tensors else value

    def relations(self) -> tuple[list[int], list[int]]:
        """For each region: what it is part of, and its parts; itself among both."""
        above: list[int] = []
        below = [1 << region.number for region in self.regions]
        for region in self.regions:
            bit = 1 << region.number
            above.append(bit if region.parent is None else bit | above[region.parent])
            parent = region.parent
            while parent is not None:
                below[parent] |= bit
                parent = self.regions[parent].parent
        return above, below


def known_bytes(shape: tuple[Expr, ...] | None, dtype: DType | None) -> Expr | None:
    """The bytes of a tensor, where its shape and element type are known."""
    return None if shape is None or dtype is None else byte_count(shape, dtype)


def sum_of(left: Expr | None, right: Expr | None) -> Expr | None:
    """The sum, where both are known."""
    return None if left is None or right is None else left + right


def collapsed(value: AbstractValue) -> Pointees:
    """`value` as one cell; the fields of a tuple are no longer told apart."""
    return value if isinstance(value, Pointees) else Pointees(*pointees_of(value), None)


def _is_tensor(region: Region) -> bool:
    """Whether a region is known to be that of a tensor."""
    if region.kind in (RegionKind.STORAGE, RegionKind.PHI):
        return False
    return region.nbytes is not None or (region.var is not None and isinstance(region.var.type, TensorType))
