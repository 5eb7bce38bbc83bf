"""Shapes at which a call takes more than its limit, or its arenas more than their floor.

Where coefficients show that there is none, none is looked for; else the search of `worst_shapes` goes over
both at once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from symalloc.planner.buffers.arena_attempts import TOLERABLE, Groups
from symalloc.planner.buffers.call_columns import CallColumns
from symalloc.planner.buffers.call_timeline import CallProfile, CallTimeline, sizes_of
from symalloc.planner.buffers.coefficient_bound import CoefficientBound
from symalloc.planner.buffers.sample_shapes import ExtentBounds, SizeTable, symbols_of
from symalloc.planner.grid import Grid, Values
from symalloc.planner.worst_shapes import Growth, skewed_points, small_points, worst_shapes
from symalloc.size.expr import Expr

NOTICED = 4096  # bytes beyond the limit
SLIGHT = 0.001  # of the floor, beyond which other arenas are looked for
MOST_CELLS = 1_000_000  # columns, bindings and arenas, multiplied, from which such bindings are looked for
MOST_KEPT = 1_000_000  # columns and bindings, multiplied, of which it is kept what is taken there
CELLS_AT_ONCE = 16_000  # the same, of one timeline: arrays of more are fresh pages each time they are made
FEWEST_SHAPES = 16
FAR = (2**10, 2**20)  # extents between which sizes are seen to grow
MOST_AT_ONCE = 16  # shapes that are returned without a closer search


_Sample: TypeAlias = tuple[Grid, Sequence[CallTimeline]]
"""Points, and what is taken at them, part by part."""


class WorstShapes(NamedTuple):
    """Shapes at which noticeably too much is taken, the worst first; and how many times the floor arenas
    take, and by which share a call exceeds its limit, at the worst shape that was looked at.
    """

    shapes: Sequence[Mapping[str, int]]
    spread: float
    over: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeSearch:
    """A search within `bounds`; `profiles` tell what callees take."""

    bounds: ExtentBounds
    profiles: Mapping[str, CallProfile]
    _sampled: dict[CallColumns, SampledCall] = field(default_factory=dict)

    def worst(
        self,
        timeline: CallTimeline,
        groups: Groups,
        bound: CoefficientBound,
        lent: Collection[int] = (),
        *,
        thorough: bool = True,
    ) -> WorstShapes:
        """Return where an assignment is worst; its arenas `lent`, by index, are held all the while, which
        counts in the limit alone.

        What is found at once is enough where the search is not to be `thorough`.
        """
        spreads, overs = [timeline.spread(groups)], [0.0]
        own = sum(not timeline.tenants[group[0]].kept for group in groups)
        alone = len(groups) < 2 and not timeline.any_beside and not lent
        keeps = alone or bound.keeps(groups, lent)
        tight = own < 2 or bool(lent) or bound.tight(groups)
        if keeps and tight:
            return WorstShapes((), spreads[0])
        sampled, most = self._sample(timeline.columns), _most_shapes(timeline, groups)

        def excesses(points: Sequence[tuple[int, ...]]) -> tuple[Grid, Values] | None:
            sample = sampled.at(tuple(points))
            if sample is None:
                return None
            grid, parts = sample
            return grid, np.concatenate([excess(part) for part in parts])

        def excess(there: CallTimeline) -> Values:
            found = np.zeros(len(there.scale))
            if not keeps:
                over = _over(there, groups, lent)
                overs.append(float(over.max()))
                found = over / TOLERABLE
            if not tight:
                ratios = there.spreads(groups)
                spreads.append(float(ratios.max()))
                found = np.maximum(found, (ratios - 1) / SLIGHT)
            return found

        signed = self.bounds.signed
        names, growths, at_once = sampled.names, sampled.growths, 0 if thorough else MOST_AT_ONCE
        besides = small_points(len(names))
        shapes = worst_shapes(
            names, excesses, most, 1.0, signed, growths=growths, at_once=at_once, besides=besides
        )
        return WorstShapes(shapes, max(spreads), max(overs))

    def spread(self, timeline: CallTimeline, groups: Groups) -> float:
        """Return how many times the floor arenas for `groups` take at most, among more shapes than those that
        `worst` looks at.
        """
        sampled, most = self._sample(timeline.columns), _most_shapes(timeline, groups)
        found = [timeline.spread(groups)]

        def excesses(points: Sequence[tuple[int, ...]]) -> tuple[Grid, Values] | None:
            sample = sampled.at(tuple(points))
            if sample is None:
                return None
            ratios = np.concatenate([part.spreads(groups) for part in sample[1]])
            found.append(float(ratios.max()))
            return sample[0], np.maximum(ratios - 1, 0.0)

        besides = skewed_points(len(sampled.names))[:most]
        worst_shapes(sampled.names, excesses, 2 * most, 0.0, self.bounds.signed, besides=besides)
        return max(found)

    def _sample(self, columns: CallColumns) -> SampledCall:
        if columns not in self._sampled:
            self._sampled[columns] = SampledCall(columns, self.profiles, self.bounds)
        return self._sampled[columns]


def _most_shapes(timeline: CallTimeline, groups: Groups) -> int:
    """Return how many shapes a search may start from."""
    return max(MOST_CELLS // (len(timeline.columns) * (len(groups) + 4)), FEWEST_SHAPES)


class SampledCall:
    """The bytes that a call takes where it is looked at: each search of it starts at the same shapes."""

    def __init__(
        self, columns: CallColumns, profiles: Mapping[str, CallProfile], bounds: ExtentBounds
    ) -> None:
        self.columns, self.profiles, self.bounds = columns, profiles, bounds
        self.sizes = sizes_of(columns, profiles)
        self.names = symbols_of(self.sizes)
        self.growths = _growths(self.sizes, self.names)
        self._known: dict[tuple[tuple[int, ...], ...], _Sample | None] = {}
        self._kept = 0

    def at(self, points: tuple[tuple[int, ...], ...]) -> _Sample | None:
        """Return what is taken at those of `points` at which all sizes are defined; None where none is."""
        if points in self._known:
            return self._known[points]
        sample = self._at(points) if points else None
        self._kept += 0 if sample is None else len(self.columns) * len(sample[0])
        if self._kept <= MOST_KEPT:  # the starts come first
            self._known[points] = sample
        return sample

    def _at(self, points: Sequence[tuple[int, ...]]) -> _Sample | None:
        table = SizeTable.at(self.bounds.grid(self.names, points), self.sizes).defined()
        if table is None:
            return None
        each = max(CELLS_AT_ONCE // max(len(self.columns), 1), FEWEST_SHAPES)
        return table.grid, [CallTimeline(self.columns, part, self.profiles) for part in table.parts(each)]


def _growths(sizes: Sequence[Expr], names: Sequence[str]) -> Sequence[Growth]:
    """Return how the largest of the sizes grows with each symbol, the others small."""
    near, far = FAR
    points = [tuple(end if n == name else 1 for n in names) for name in names for end in FAR]
    values = SizeTable.at(Grid(names=tuple(names), points=tuple(points)), sizes).values
    most = np.log2(np.maximum(np.nan_to_num(values).max(axis=0, initial=1.0), 1.0)).tolist()
    degrees = [round((b - a) / math.log2(far / near)) for a, b in zip(most[::2], most[1::2], strict=True)]
    return [Growth(b - d * math.log2(far), d) for b, d in zip(most[1::2], degrees, strict=True)]


def _over(there: CallTimeline, groups: Groups, lent: Collection[int]) -> Values:
    """By how much more is taken than the limit at each binding, as a share of it, where that is noticed."""
    over, limit = there.over(groups, lent)
    if over.max(initial=0.0) <= NOTICED:
        return np.zeros(over.shape[1])
    shares = np.where(over > NOTICED, over / np.maximum(limit, 1.0), 0.0)
    found: Values = shares.max(axis=0, initial=0.0)
    return found
