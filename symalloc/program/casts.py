"""R.match_cast taken apart: the symbols that it binds, and the extents that it compares at run time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from symalloc.program.ir import MatchCast
from symalloc.program.operands import type_of
from symalloc.program.types import ScalarType, ShapeType, TensorType, TupleType, Type
from symalloc.size.condition import Condition, eq
from symalloc.size.expr import Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class CastReading:
    """`definitions` gives the symbols bound here from known extents; `compared` the other pairs (source,
    target).

    `unchecked` holds the numbers of pairs whose target is a bare symbol with a value already: TVM 0.27's
    KillAfterLastUse takes such an R.match_cast for a definition of what follows and drops it, so that nothing
    compares them when the module runs.
    """

    definitions: dict[str, Expr] = field(default_factory=dict)
    compared: tuple[tuple[int, Expr, Expr], ...] = ()
    unchecked: frozenset[int] = frozenset()

    @property
    def facts(self) -> tuple[Condition, ...]:
        """The facts behind the cast."""
        checked = (pair for pair in self.compared if pair[0] not in self.unchecked)
        facts = (eq(source, target) for _, source, target in checked)
        return tuple(fact for fact in facts if fact.as_bool is None)


def read_cast(cast: MatchCast) -> CastReading:
    """Take `cast` apart; the number of an extent counts through all tensors of a tuple."""
    pairs = tuple(enumerate(extent_pairs(type_of(cast.source), cast.target)))
    definitions: dict[str, Expr] = {}
    binding: set[int] = set()
    for index, (source, target) in pairs:
        name = target.as_symbol
        if (
            name is not None
            and name in cast.defines
            and name not in definitions
            and name not in source.symbols
        ):
            definitions[name] = source
            binding.add(index)
    compared = tuple(
        (index, source, target.substitute(definitions))
        for index, (source, target) in pairs
        if index not in binding
    )
    bare = frozenset(index for index, (_, target) in pairs if target.as_symbol is not None)
    unchecked = bare if cast.returns else frozenset[int]()
    return CastReading(definitions=definitions, compared=compared, unchecked=unchecked)


def extent_pairs(source: Type, target: Type) -> Iterator[tuple[Expr, Expr]]:
    """The extents (and scalars) of two types side by side, where both are known."""
    match source, target:
        case TupleType(fields=left), TupleType(fields=right):
            for a, b in zip(left, right, strict=False):
                yield from extent_pairs(a, b)
        case (TensorType(shape=known), TensorType(shape=wanted)) | (
            ShapeType(values=known),
            ShapeType(values=wanted),
        ) if known and wanted and len(known) == len(wanted):
            yield from zip(known, wanted, strict=True)
        case ScalarType(value=a), ScalarType(value=b) if a is not None and b is not None:
            yield a, b
