"""The buffers that are live at the same time, and the floor: the largest sum of bytes that are live at one
position.  No plan of this order can do with less.

When dispatches are reordered, what touches one buffer is over before anything touches another: a partial
order.  Positions are added to those of the text, one for each of some antichains, until any two buffers that
may be alive together have one in common.  The floor is the heaviest antichain, found by a maximum flow
(Dilworth, A decomposition theorem for partially ordered sets, 1950).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from symalloc.analysis.dependencies import HappensBefore, Touch
from symalloc.analysis.effects import Intervals
from symalloc.analysis.register_machine import Reservation
from symalloc.analysis.timeline import Timeline
from symalloc.planner.grid import Ranges, matrix_product, sample_grid, score_grid
from symalloc.planner.memory_plan import Buffer
from symalloc.program.ir import Var
from symalloc.prover.domain import Domain
from symalloc.size.expr import ZERO, Expr

Changes: TypeAlias = Sequence[tuple[Sequence[int], Sequence[int]]]
"""What begins and what ends, at one position after the other."""


def changes_of(lives: Sequence[Intervals]) -> Changes:
    """Return what begins and what ends to live, by index, at each position where something does."""
    found: dict[int, tuple[list[int], list[int]]] = {}
    for index, live in enumerate(lives):
        for begin, end in live:
            if begin < end:
                found.setdefault(begin, ([], []))[0].append(index)
                found.setdefault(end, ([], []))[1].append(index)
    return [found[position] for position in sorted(found)]


def live_sets(lives: Sequence[Intervals]) -> Iterator[set[int]]:
    """Yield the indices of the ranges that are live, in the order of time, wherever something has begun and
    something ends next: every maximal set is among them.
    """
    active: set[int] = set()
    grown = False
    for begins, ends in changes_of(lives):
        if ends and grown:
            yield active
        active = active.difference(ends).union(begins)
        grown = bool(begins) or (grown and not ends)


def interference(buffers: Sequence[Buffer]) -> tuple[tuple[int, ...], ...]:
    """Return for each buffer the indices of those that are live at some position with it, in order."""
    found: list[list[int]] = [[] for _ in buffers]
    active: set[int] = set()
    for begins, ends in changes_of([b.live for b in buffers]):
        active.difference_update(ends)
        for index in begins:
            found[index] += active
            for other in active:
                found[other].append(index)
            active.add(index)
    return tuple([tuple(sorted(set(others))) for others in found])


def pairs_live_together(lives: Sequence[Intervals]) -> int:
    """Return how many pairs of ranges are live together, those counted again that meet more than once."""
    pairs = active = 0
    for begins, ends in changes_of(lives):
        active -= len(ends)
        pairs += sum(range(active, active + len(begins)))
        active += len(begins)
    return pairs


def most_at_once(changes: Changes) -> int:
    """Return how many are live together at most."""
    return max(accumulate(len(begins) - len(ends) for begins, ends in changes), default=0)


def live_sums(buffers: Sequence[Buffer]) -> tuple[Expr, ...]:
    """Return the sums of sizes over the sets of buffers that are live together.

    A set within another, or with no more buffers of any size, is left out: sizes are >= 0.
    """
    distinct: dict[Expr, int] = {}
    kinds = [distinct.setdefault(b.size, len(distinct)) for b in buffers]
    sets = live_sets([b.live for b in buffers])
    counts = {frozenset(Counter(kinds[index] for index in together).items()) for together in sets}
    sizes = tuple(distinct)
    sums = {sum((sizes[kind] * n for kind, n in c.items()), ZERO) for c in _maximal(map(dict, counts))}
    return tuple(sorted(sums, key=lambda e: e.key))


def _maximal(found: Iterable[dict[int, int]]) -> list[dict[int, int]]:
    """Drop the counts that another reaches in every kind."""
    kept: list[dict[int, int]] = []
    holding: dict[int, list[dict[int, int]]] = {}  # those of `kept` that have some of a kind
    for counts in sorted(found, key=lambda c: -sum(c.values())):
        others = min((holding.get(kind, []) for kind in counts), key=len)
        if not any(all(other.get(kind, 0) >= n for kind, n in counts.items()) for other in others):
            kept.append(counts)
            for kind in counts:
                holding.setdefault(kind, []).append(counts)
    return kept


MOST_BINDINGS = 8  # at which heaviest antichains are looked for


def reordered(
    buffers: Sequence[Buffer], numbers: Sequence[int], relation: HappensBefore, ranges: Ranges
) -> list[Buffer]:
    """Return `buffers`, the memories `numbers` of a function, with live ranges for an order."""
    order = BufferOrder(buffers=buffers, numbers=numbers, relation=relation)
    cliques = order.cover()
    if not cliques:
        return list(buffers)
    lives = _with_positions(buffers, [*order.heaviest_over(ranges), *cliques])
    return [replace(b, live=live) for b, live in zip(buffers, lives, strict=True)]


@dataclass(frozen=True, kw_only=True)
class BufferOrder:
    """The buffers of one function: which of them are over before which, by index."""

    buffers: Sequence[Buffer]
    numbers: Sequence[int]
    relation: HappensBefore

    @cached_property
    def over(self) -> NDArray[np.bool_]:
        """`over[i, j]`: all that touches buffer i is over before anything touches buffer j."""
        is_over, shape = self.relation.is_over, (len(self.numbers), len(self.numbers))
        found = [is_over(i, j) for i in self.numbers for j in self.numbers]
        return np.array(found, dtype=bool).reshape(shape)

    @cached_property
    def met(self) -> NDArray[np.bool_]:
        """The pairs that may be alive together."""
        return ~(self.over | self.over.T) & ~np.eye(len(self.numbers), dtype=bool)

    def cover(self) -> list[list[int]]:
        """Return antichains that hold every two that may be alive together, but not in the text's order."""
        left, cliques = self.met.copy(), list[list[int]]()
        for i, others in enumerate(interference(self.buffers)):
            left[i, others] = False
        for i, j in np.argwhere(np.triu(left)).tolist():
            clique, free = [i], self.met[i].copy()
            for k in (j, *np.flatnonzero(left[i]).tolist(), *np.flatnonzero(free).tolist()):
                if left[i, j] and free[k]:
                    clique.append(k)
                    free &= self.met[k]
            cliques += [clique] if left[i, j] else []
            left[np.ix_(clique, clique)] = False
        return cliques

    def heaviest_over(self, ranges: Ranges) -> list[list[int]]:
        """Return the heaviest antichains at some bindings spread over a grid, each once."""
        kinds: dict[Expr, int] = {}
        index = [kinds.setdefault(b.size, len(kinds)) for b in self.buffers]
        grid = score_grid(tuple(kinds), ranges)
        values = np.nan_to_num(grid.values(tuple(kinds)))
        shapes = (values / np.maximum(values.max(axis=0, initial=1.0), 1.0)).round(9)
        unlike = np.unique(shapes, axis=1, return_index=True)[1]
        chosen = unlike[np.linspace(0, len(unlike) - 1, min(MOST_BINDINGS, len(unlike)), dtype=int)]
        found: dict[tuple[int, ...], None] = {}
        for point in chosen.tolist():
            sizes = [kind.evaluate(grid.binding(point)) for kind in kinds]
            found[tuple(self.heaviest([sizes[kind] for kind in index]))] = None
        return [list(one) for one in found if one]

    def heaviest(self, sizes: Sequence[int]) -> list[int]:
        """Return the antichain whose sizes make the largest sum."""
        import networkx

        some = [i for i, size in enumerate(sizes) if size > 0]
        flow = networkx.DiGraph()
        for i in some:
            flow.add_edge("source", (i, "end"), capacity=sizes[i])
            flow.add_edge((i, "begin"), "sink", capacity=sizes[i])
            flow.add_edge((i, "begin"), (i, "end"))
        for i, j in self._steps(some):
            flow.add_edge((i, "end"), (j, "begin"))
        if not some:
            return []
        _, (near, _) = networkx.minimum_cut(flow, "source", "sink")
        return [i for i in some if (i, "end") in near and (i, "begin") not in near]

    def _steps(self, some: Sequence[int]) -> Iterable[tuple[int, int]]:
        """The pairs of buffers that are over one before the other, with none of `some` between them."""
        over = self.over[np.ix_(some, some)]
        between = matrix_product(over.astype(float), over.astype(float)) > 0
        return [(some[i], some[j]) for i, j in np.argwhere(over & ~between).tolist()]


class HeldInOrder:
    """The memory that a call holds where its dispatches run in an order of `relation`.

    Each part is held from the first point that touches it to the last: what one reservation takes, or all
    that a call within takes and lets go of.
    """

    def __init__(self, timeline: Timeline, relation: HappensBefore) -> None:
        self.timeline, graph = timeline, relation.graph
        regions, cfg = graph.points_to.regions, graph.points_to.cfg
        touched, used = defaultdict[Var, list[Touch]](list), dict[object, list[Touch]]()
        for memory, touches in graph.touches.items():
            touched[regions[regions[memory].root].var] += touches
        held = defaultdict[object, list[Reservation]](list)
        for one in timeline.reservations:
            made, later = timeline.steps[one.number], timeline.steps[one.end :]
            var = made.outermost.var
            gone = var is not one.var and any(s.frame is made.frame and s.path == made.path for s in later)
            key = var if gone else one.number
            held[key].append(one)
            point = cfg.starts[var]
            within = [
                Touch(point, number, True, region=0)
                for number, (first, last) in enumerate(graph.spans)
                if first <= point <= last
            ]
            used[key] = [*within, *([] if gone else touched[var])]
        ends = (0, 0), (cfg.exit, len(graph.nodes))
        always = [Touch(point, number, True, region=0) for point, number in ends]
        merged = replace(graph, touches={i: of or always for i, of in enumerate(used.values())})
        self._parts = [replace(timeline, unseen=(), reservations=held[key]) for key in used]
        apart = replace(relation, graph=merged)
        self._order = BufferOrder(buffers=(), numbers=range(len(used)), relation=apart)

    def taken(self) -> Iterable[Reservation]:
        """All that a call reserves."""
        return self.timeline.taken()

    def peak(self, binding: Mapping[str, int]) -> int | None:
        """The most bytes that some order may hold at once; None where that is not known."""
        text, sizes = self.timeline.peak(binding), [part.peak(binding) for part in self._parts]
        if text is None or None in sizes:
            return None
        known = [size or 0 for size in sizes]
        return max(text, sum(known[i] for i in self._order.heaviest(known)))


def peaks_beside(plan: HeldInOrder | Timeline, other: Timeline, domain: Domain) -> Sequence[tuple[int, int]]:
    """Return what a call may take with one plan, also in any order, and with another in that of the text, at
    the samples of `domain`; nothing where it is not known.
    """
    taken = (*plan.taken(), *other.taken())
    grid = sample_grid(domain, sorted({name for r in taken if r.size for name in r.size.symbols}))
    pairs = [(plan.peak(at), other.peak(at)) for at in map(grid.binding, range(len(grid)))]
    found = [(mine, theirs) for mine, theirs in pairs if mine is not None and theirs is not None]
    return found if len(found) == len(pairs) else []


def _with_positions(buffers: Sequence[Buffer], cliques: Sequence[Sequence[int]]) -> list[Intervals]:
    """Return the live ranges of buffers with a position more for each of `cliques`, behind that at which the
    last of it begins.
    """
    behind, changes = dict[int, list[set[int]]](), dict[int, set[int]]()
    for clique in cliques:
        behind.setdefault(max(buffers[i].live[0][0] for i in clique), []).append(set(clique))
    for i, b in enumerate(buffers):
        for position in chain.from_iterable(b.live):
            changes.setdefault(position, set()).symmetric_difference_update((i,))
    found: list[list[tuple[int, int]]] = [[] for _ in buffers]
    alive, number = set[int](), 0
    for position in sorted(changes):
        alive ^= changes[position]
        for now in (alive, *behind.get(position, ())):
            number += 1
            for i in now:
                begin = found[i].pop()[0] if found[i] and found[i][-1][1] == number else number
                found[i].append((begin, number + 1))
    return [tuple(one) for one in found]
