"""Sizes that another size reaches at every shape."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from symalloc.size.expr import Expr


def undominated(sizes: Iterable[Expr], signed: Collection[str] = ()) -> tuple[Expr, ...]:
    """Those of `sizes` that no other reaches term by term, of some that reach each other the first.

    Symbols are taken as >= 0, but for those that are `signed`.
    """
    kept: list[Expr] = []
    for size in dict.fromkeys(sizes):
        if not any(reaches(other, size, signed) for other in kept):
            kept = [other for other in kept if not reaches(size, other, signed)] + [size]
    return tuple(kept)


def reaches(high: Expr, low: Expr, signed: Collection[str] = ()) -> bool:
    """True where `high` is at least `low` term by term, symbols that are not `signed` being >= 0."""
    difference = high - low
    if not difference.symbols.isdisjoint(signed):
        return False
    return difference.is_polynomial and all(c >= 0 for c in difference.terms.values())
