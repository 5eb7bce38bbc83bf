"""A plan as its JSON tells it: the formulas of each function, without the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import msgspec

from symalloc.prover.domain import INT64_MIN, Domain
from symalloc.size.expr import Expr

Measure: TypeAlias = Literal["call", "arenas", "floor", "results"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
"""What is compared: the most that a whole call holds at once, its arenas, their floor, its results."""


class TensorRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A planned tensor and its place in an arena; `operator` writes it first, `callee` works in it."""

    name: str
    operator: str | None
    callee: str | None
    size: Expr = msgspec.field(name="bytes")
    offset: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRecord:
    """The plan of one function.

    Of the sums of bytes of each measure the largest is what it takes; None where it is no formula.  `guards`
    are the conditions that are checked.  `bounds` holds the declared bounds of symbols, `signed` the symbols
    that may be negative, `samples` the bindings at which the plan was shown.
    """

    name: str
    sums: Mapping[Measure, tuple[Expr, ...] | None]
    tensors: tuple[TensorRecord, ...] = ()
    guards: tuple[str, ...] = ()
    bounds: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    signed: frozenset[str] = frozenset()
    samples: tuple[Mapping[str, int], ...] = ()

    @property
    def domain(self) -> Domain:
        """The shapes without empty dimensions within the declared bounds."""
        lower = {name: least for name, (least, _) in self.bounds.items() if least is not None}
        scalars = dict.fromkeys(self.signed - lower.keys(), INT64_MIN)
        dimensions = {n: bound if n in self.signed else max(bound, 1) for n, bound in lower.items()}
        upper = {name: most for name, (_, most) in self.bounds.items() if most is not None}
        return Domain(lower={**scalars, **dimensions}, upper=upper, default_lower=1)
