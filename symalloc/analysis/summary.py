"""What a caller must know of a function: which parameters its result may be, which it writes, which it keeps.

The leaves of a function's parameters (tuple fields taken apart) are numbered in order; sets of leaves are
integers with one bit a leaf.
"""

from __future__ import annotations

from dataclasses import dataclass

from symalloc.analysis.regions import AbstractValue, Pointees, TuplePointees, pointees_of
from symalloc.program.types import TupleType, Type
from symalloc.size.expr import Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """What one leaf of a result may be: parameter leaves (`may` by doubtful ownership only), or `fresh`
    memory.
    """

    must: int = 0
    may: int = 0
    fresh: bool = True
    storage: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSummary:
    """`results` holds an entry for each leaf of the result, in order; `writes` are the parameter leaves
    written, `captures` those that something may hold on to behind the call, other than as a result.
    """

    results: tuple[Returned, ...] = ()
    writes: int = 0
    may_writes: int = 0
    captures: int = 0


NOTHING = FunctionSummary()


def align(value: AbstractValue, kind: Type) -> tuple[Pointees, ...]:
    """The cells of `value`, one for each leaf of `kind`: a tuple that is not known by field stands for
    each of them.
    """
    if not isinstance(kind, TupleType):
        return (value,) if isinstance(value, Pointees) else (Pointees(*pointees_of(value), None),)
    if isinstance(value, TuplePointees) and len(value.items) == len(kind.fields):
        pairs = zip(value.items, kind.fields, strict=True)
        return tuple(cell for item, field in pairs for cell in align(item, field))
    whole = value if isinstance(value, Pointees) else Pointees(*pointees_of(value), None)
    return tuple(cell for field in kind.fields for cell in align(whole, field))
