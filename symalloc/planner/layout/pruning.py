"""The alternatives of a maximum that matter, and no more of them than a formula should have.

What another alternative is proved to reach is dropped.  Where too many are left, two are replaced by the sum
with the larger coefficient of each term: it is at least either of them, so that what lies above only moves
up.  The two are taken for which that adds least at the sample bindings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite

import numpy as np

from symalloc.planner.layout.dominance import Dominance
from symalloc.planner.search.grid import Values
from symalloc.size.choice import maximum
from symalloc.size.expr import ZERO, Expr, Monomial

ENOUGH_ALTERNATIVES, ENOUGH_TERMS = 32, 128  # beyond these two are replaced where that adds next to nothing
MOST_ALTERNATIVES, MOST_TERMS = 64, 320  # beyond these whatever it adds; terms are those of all together
FEW_ALTERNATIVES, FEW_TERMS = 4, 32  # where so much was compared that formulas have to be short
MOST_KEPT = 64  # before they are made fewer on the way
FEW_KEPT = 8  # that are compared one by one
NEXT_TO_NOTHING = 0.02  # of the maximum, at any sample


def prune(candidates: Iterable[Expr], dominance: Dominance) -> tuple[Expr, ...]:
    """The candidates that no other is proved to reach, or fewer sums that reach all of them; zero where there
    are none.
    """
    found = list(dict.fromkeys(candidates))
    if len(found) <= 1:
        return tuple(found) or (ZERO,)
    totals = [_total(dominance.at_samples(e)) for e in found]
    kept: list[Expr] = []
    table: Values | None = None
    for i in sorted(range(len(found)), key=lambda i: (-totals[i], -len(found[i].terms), found[i].key)):
        larger = kept if table is None else _larger(kept, table, dominance.at_samples(found[i]))
        if any(dominance.reaches(one, found[i]) for one in larger):
            continue
        kept.append(found[i])
        if len(kept) > (FEW_ALTERNATIVES if dominance.exhausted else MOST_KEPT):
            kept = _fewer(kept, dominance)
        table = None if len(kept) <= FEW_KEPT else np.array([dominance.at_samples(e) for e in kept])
    return tuple(sorted(_fewer(kept, dominance), key=lambda e: e.key))


def _larger(kept: Sequence[Expr], table: Values, values: Values) -> list[Expr]:
    """Those of `kept`, whose values are the rows of `table`, that are nowhere less than `values`."""
    return [kept[k] for k in np.flatnonzero(~(table < values).any(axis=1)).tolist()]


def _total(values: Values) -> float:
    """The sum of `values`, in which those that are not defined count as 0."""
    total = float(values.sum())
    return total if isfinite(total) else float(np.nan_to_num(values).sum())


def _fewer(alternatives: list[Expr], dominance: Dominance) -> list[Expr]:
    """`alternatives`, or fewer sums that reach all of them where they are too many or too long."""
    scarce = dominance.exhausted
    enough = (FEW_ALTERNATIVES, FEW_TERMS) if scarce else (ENOUGH_ALTERNATIVES, ENOUGH_TERMS)
    while len(alternatives) > 1 and _beyond(alternatives, *enough):
        if not all(dominance.order.never_negative(m) for e in alternatives for m in e.terms):
            return [maximum(*alternatives)] if len(alternatives) > ENOUGH_ALTERNATIVES else alternatives
        cost, left, right = _nearest(alternatives, dominance)
        if not scarce and cost > NEXT_TO_NOTHING and not _beyond(alternatives, MOST_ALTERNATIVES, MOST_TERMS):
            break
        both = _larger_terms(alternatives[left], alternatives[right])
        dominance.raised += 1
        rest = [e for k, e in enumerate(alternatives) if k not in (left, right)]
        alternatives = [e for e in rest if not dominance.order.at_most(e, both)] + [both]
    return alternatives


def _beyond(alternatives: Sequence[Expr], most: int, terms: int) -> bool:
    return len(alternatives) > most or sum(len(e.terms) for e in alternatives) > terms


def _larger_terms(left: Expr, right: Expr) -> Expr:
    """The sum with the larger coefficient of each term: at least either of the two."""
    terms = {m: max(left.terms.get(m, 0), right.terms.get(m, 0)) for m in (*left.terms, *right.terms)}
    return Expr({m: c for m, c in terms.items() if c})


def _nearest(alternatives: Sequence[Expr], dominance: Dominance) -> tuple[float, int, int]:
    """The two that are replaced with the least growth of the maximum, relative to it, at any sample, behind
    that growth; of those alike the two with the most terms.
    """
    monomials = list(dict.fromkeys(m for e in alternatives for m in e.terms))
    matrix = np.array([[float(e.terms.get(m, 0)) for m in monomials] for e in alternatives])
    table = np.nan_to_num(np.stack([dominance.at_samples(_alone(m)) for m in monomials]))
    top = (matrix @ table).max(axis=0, initial=1.0)
    best: tuple[float, int, int, int] | None = None
    for left in range(len(alternatives) - 1):
        joined = np.maximum(matrix[left], matrix[left + 1 :])
        costs = ((joined @ table) / top - 1).max(axis=1, initial=0.0)  # there may be no sample
        lengths = np.count_nonzero(joined, axis=1)
        for offset, (cost, length) in enumerate(zip(costs.tolist(), lengths.tolist(), strict=True)):
            candidate = (round(cost, 9), -length, left, left + 1 + offset)
            best = candidate if best is None else min(best, candidate)
    assert best is not None
    return best[0], best[2], best[3]


def _alone(monomial: Monomial) -> Expr:
    return Expr({monomial: 1})
