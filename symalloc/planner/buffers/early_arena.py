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
    tensors = np.array(planned, dtype=np.int64)
    begins, ends = memory.columns.held_columns.single(tensors)
    behind = len(planned) - np.searchsorted(np.sort(begins), np.arange(first + 1))  # by column
    crossing = len(planned) - behind - np.searchsorted(np.sort(ends), np.arange(first + 1), side="right")
    found: dict[tuple[int, ...], int] = {}
    for column in range(first, 0, -1):
        if behind[column] > MOST_LATER:
            break
        if 0 < crossing[column] <= MOST_CROSSING:
            found.setdefault(tuple(tensors[(begins < column) & (ends > column)].tolist()), column)
    for across in sorted(found, key=lambda across: (len(across), -found[across]))[:MOST_CUTS]:
        column = found[across]
        before = tensors[ends <= column].tolist()
        if before and memory.possible(before):
            yield _Cut(before, across, tensors[begins >= column].tolist())
