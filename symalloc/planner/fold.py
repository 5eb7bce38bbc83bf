"""Repetition: layers need the same buffers again and again, which may as well lie at the same offsets.

A *fold* takes the buffers that come at one place of each layer for one, live whenever one of them is.  The
floor stays as it is, for they are live one after the other.  What is stacked is as small as one layer,
however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from symalloc.planner.interference import changes_of
from symalloc.planner.memory_plan import Buffer

FEWEST = 4  # repetitions that are worth a fold
LONGEST = 400  # buffers in one layer
MOST_RUNS = 8  # of layers, one behind the other


def folded(buffers: Sequence[Buffer]) -> list[list[int]] | None:
    """Return the buffers, by index, that are to share an offset, those of each list never live together.

    None where that leaves more than half as many.
    """
    order = sorted((i for i, b in enumerate(buffers) if b.live), key=lambda i: (buffers[i].live[0][0], i))
    marks = _marks([buffers[i] for i in order])
    alike: dict[tuple[int, int], list[list[int]]] = {}
    for number, (begin, end, period) in enumerate(_runs(marks)):
        for place in range(begin, end):
            chains = alike.setdefault((number, (place - begin) % period), [])
            _append(chains, order[place], buffers)
    found = list(chain.from_iterable(alike.values()))
    taken = frozenset(chain.from_iterable(found))
    found += [[i] for i in range(len(buffers)) if i not in taken]
    return sorted(found) if 0 < 2 * len(found) <= len(buffers) else None


def folds_of(buffers: Sequence[Buffer], classes: Sequence[Sequence[int]]) -> list[Buffer]:
    """Return one buffer for each of `classes`, live whenever one of the class is; time is cut short to one
    position for each different set of classes that are live together.
    """
    lives = [tuple(chain.from_iterable(buffers[i].live for i in members)) for members in classes]
    found: list[list[tuple[int, int]]] = [[] for _ in classes]
    begun: dict[int, int] = {}
    changed: set[int] = set()  # since the last position
    known: set[int] = set()  # sets of classes, with one bit for each
    together = 0
    for begins, ends in changes_of(lives):
        for number in (*ends, *begins):
            together ^= 1 << number
            changed ^= {number}
        if begins and together not in known:
            for number in changed:
                if number in begun:
                    found[number].append((begun.pop(number), len(known)))
                else:
                    begun[number] = len(known)
            known.add(together)
            changed.clear()
    for number, begin in begun.items():
        found[number].append((begin, len(known)))
    return [
        replace(buffers[members[0]], live=tuple(live)) for members, live in zip(classes, found, strict=True)
    ]


def unfolded(order: Sequence[int], classes: Sequence[Sequence[int]]) -> list[int]:
    """Return the order of all buffers where `order` is that of their classes."""
    return [i for number in order for i in classes[number]]


def _append(chains: list[list[int]], i: int, buffers: Sequence[Buffer]) -> None:
    """Append a buffer to the first of `chains` whose last one ends before it begins, else start another."""
    begin = buffers[i].live[0][0]
    for one in chains:
        if buffers[one[-1]].live[-1][1] <= begin:
            one.append(i)
            return
    chains.append([i])


def _marks(buffers: Sequence[Buffer]) -> NDArray[np.int64]:
    """A number for each buffer: the same for those of one size that live equally long."""
    known: dict[object, int] = {}
    found = []
    for b in buffers:
        shape = tuple((begin - b.live[0][0], end - b.live[0][0]) for begin, end in b.live)
        found.append(known.setdefault((b.size, b.alignment, shape), len(known)))
    return np.array(found, dtype=np.int64)


def _runs(marks: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Yield runs that repeat, the longest first, as their begin, end and period; they do not overlap."""
    parts = [(0, len(marks))]
    for _ in range(MOST_RUNS):
        found = [(*_longest(marks[begin:end]), begin, end) for begin, end in parts]
        length, first, period, begin, end = max(found, default=(0, 0, 0, 0, 0), key=lambda one: one[0])
        if not length:
            return
        first += begin
        yield first, first + length, period
        parts.remove((begin, end))
        parts += [(begin, first), (first + length, end)]


def _longest(marks: NDArray[np.int64]) -> tuple[int, int, int]:
    """The length, begin and period of the longest run that repeats FEWEST times; of the shortest period."""
    best = (0, 0, 0)
    for period in range(1, min(LONGEST, len(marks) // FEWEST) + 1):
        differ = np.flatnonzero(marks[period:] != marks[:-period])
        edges = np.concatenate(([-1], differ, [len(marks) - period]))
        lengths = np.diff(edges) - 1
        at = int(lengths.argmax())
        length = int(lengths[at]) + period
        if length >= FEWEST * period and length > best[0]:
            best = (length, int(edges[at]) + 1, period)
    return best
