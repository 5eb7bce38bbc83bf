"""An arena that ends before results are made, and beside it, what outlives it and what comes later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.buffers.first_fit import first_fit
from symalloc.planner.buffers.result_memory import relieved

MOST_CUTS = 5  # that are tried
MOST_CROSSING = 3
MOST_LATER = 80
MOST_PLANNED = 2000


class _Cut(NamedTuple):
    """The tensors that end before a column, those live across it, and those that begin there or later."""

    before: Sequence[int]
    across: Sequence[int]
    behind: Sequence[int]


def early_arena(
    memory: CallTimeline, planned: Sequence[int], results: Sequence[int], hosts: Sequence[int]
) -> list[list[int]] | None:
    """Return groups that keep the limit, the results first; None where no cut is found that does.

    One arena holds what ends before a column at which few tensors are live.  Those lend their memory to what
    comes before them, as results do, and what comes later is grouped one by one.
    """
    if not memory.straight or not memory.columns.alike or len(planned) > MOST_PLANNED:
        return None
    whole = memory.taken([*([i] for i in results), planned])
    crowded = np.any(whole > memory.limit + 0.5, axis=1)
    for cut in _cuts(memory, planned, int(np.argmax(crowded))):
        groups = relieved(memory, cut.before, results, cut.across)
        if groups is not None:
            return first_fit(memory, cut.behind, results, hosts, groups)
    return None


def _cuts(memory: CallTimeline, planned: Sequence[int], first: int) -> Iterator[_Cut]:
    """Yield cuts in front of the column `first`, those with little across first, the latest of these; what
    ends before a cut can share an arena.
    """
    spans = {i: memory.held[i][0] for i in planned}
    begins, ends = (np.array([getattr(spans[i], word) for i in planned]) for word in ("begin", "end"))
    found: dict[tuple[int, ...], int] = {}
    for column in range(first, 0, -1):
        if int((begins >= column).sum()) > MOST_LATER:
            break
        crossing = (begins < column) & (ends > column)
        if 0 < int(crossing.sum()) <= MOST_CROSSING:
            across = tuple(i for i, over in zip(planned, crossing.tolist(), strict=True) if over)
            found.setdefault(across, column)
    for across in sorted(found, key=lambda across: (len(across), -found[across]))[:MOST_CUTS]:
        column = found[across]
        before = [i for i in planned if spans[i].end <= column]
        behind = [i for i in planned if spans[i].begin >= column]
        if before and memory.possible(before):
            yield _Cut(before, across, behind)
