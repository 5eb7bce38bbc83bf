"""Calls that are seen to keep their limit, and arenas their floor, at every binding, from the coefficients of
sizes alone.

A size is a sum of products, none of which is ever negative.  Where each of its coefficients in what is taken
at one moment is at most that in what is needed at another, which the limit is never below, the limit is
kept.  The size of an arena is bounded product by product, so this shows it for many calls but not for all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np

from symalloc.planner.buffers.call_columns import CallColumns, PathColumns
from symalloc.planner.buffers.call_timeline import CallTimeline, sizes_of
from symalloc.planner.buffers.sample_shapes import SizeTable
from symalloc.planner.grid import EXACT, Grid, Truths, Values
from symalloc.prover.domain import Domain
from symalloc.prover.ordering import SyntacticOrder
from symalloc.size.expr import Expr, Monomial

MOST_COMPARED = 2_000_000  # columns, and products squared, multiplied


class CoefficientBound:
    """The coefficients of what a call takes, where it calls no function and they are not too many; no symbol
    leaves `domain`.
    """

    def __init__(self, columns: CallColumns, domain: Domain) -> None:
        self.columns = columns
        self._known: dict[tuple[tuple[tuple[int, ...], ...], frozenset[int]], bool] = {}
        self.timeline: CallTimeline | None = None
        if columns.merged or columns.calls:
            return
        table = _coefficients(sizes_of(columns, {}), domain)
        width = table.values.shape[1]
        exact = table.values.sum() * max(len(columns.tenants), 1) < EXACT
        if exact and len(columns) * width * (width + 1) <= MOST_COMPARED:
            self.timeline = CallTimeline(columns, table, {})

    @cached_property
    def everywhere(self) -> CallTimeline | None:
        """The coefficients as bytes, with the limit and the floor of each moment that `keeps` and `tight`
        see: what is needed and what is live there, or at a moment with most that exceeds it in every product.

        None for a function that branches, and where it is not known how much is taken.
        """
        if self.timeline is None or not self.columns.straight or any(s.unknown for s in self.columns.spans):
            return None
        return self.timeline.limited(_exceeding(self.timeline.need), _exceeding(self.timeline.live))

    def keeps(self, groups: Sequence[Sequence[int]], lent: Collection[int] = ()) -> bool:
        """Return whether a call is seen to keep its limit with an arena for each of `groups`, of which those
        `lent`, by index, are held all the while; False says nothing.
        """
        timeline = self.timeline
        if timeline is None:
            return False
        key = tuple(map(tuple, groups)), frozenset(lent)
        if key not in self._known:
            taken = timeline.taken(groups, lent)
            there: list[bool] = np.logical_and.reduce(taken <= timeline.need, axis=1).tolist()
            paths = (one for one in self.columns.spans if not one.path.text)
            self._known[key] = all(
                all(there[path.begin : path.end]) or _kept(path, taken, timeline.need) for path in paths
            )
        return self._known[key]

    def tight(self, groups: Sequence[Sequence[int]]) -> bool:
        """Return whether arenas for `groups` are seen to take no more together than the floor; False says
        nothing.
        """
        timeline = self.timeline
        if timeline is None:
            return False
        there, elsewhere = _below(timeline.own(groups), timeline.live)
        return bool((there | elsewhere).all())


def _kept(path: PathColumns, taken: Values, need: Values) -> bool:
    """Return whether no more is taken at any moment of a path than is needed at some moment of it."""
    taken, need = taken[path.begin : path.end], need[path.begin : path.end]
    there, elsewhere = _below(taken, need)
    for _, first, last in path.unknown:
        elsewhere[first - path.begin : last - path.begin] = False
    return bool((there | elsewhere).all())


def _below(taken: Values, need: Values) -> tuple[Truths, Truths]:
    """Return for each moment whether no more is taken than is needed there, and whether than at one of those
    at which most is needed of one product, or of all.
    """
    there: Truths = np.logical_and.reduce(taken <= need, axis=1)
    if there.all():
        return there, there.copy()
    most = _most(need)
    below = np.logical_and.reduce(taken[:, None, :] <= most[None, :, :], axis=2)
    return there, np.logical_or.reduce(below, axis=1)


def _most(need: Values) -> Values:
    """Return the rows with most of one product, and that with most of all."""
    found: Values = need[[*need.argmax(axis=0).tolist(), int(need.sum(axis=1).argmax())]]
    return found


def _exceeding(need: Values) -> Values:
    """Return for each row the largest of those with most that are nowhere less, or itself."""
    most = _most(need)
    most = most[np.argsort(-most.sum(axis=1), kind="stable")]
    above = np.logical_and.reduce(need[:, None, :] <= most[None, :, :], axis=2)
    found: Values = np.where(above.any(axis=1)[:, None], most[above.argmax(axis=1)], need)
    return found


def _coefficients(sizes: Sequence[Expr], domain: Domain) -> SizeTable:
    """The coefficients of sizes in place of their values, a column for each product; a size that may be
    negative by its terms is one product.
    """
    order = SyntacticOrder(domain)
    products: dict[Monomial | Expr, int] = {}
    terms: list[tuple[int, int, int]] = []
    for row, size in enumerate(sizes):
        plain = all(c >= 0 and order.never_negative(m) for m, c in size.terms.items())
        for product, coefficient in size.terms.items() if plain else ((size, 1),):
            terms.append((row, products.setdefault(product, len(products)), coefficient))
    values = np.zeros((len(sizes), max(len(products), 1)))
    for row, column, coefficient in terms:
        values[row, column] = coefficient
    return SizeTable(Grid(names=(), points=()), {size: row for row, size in enumerate(sizes)}, values)
