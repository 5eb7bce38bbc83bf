"""Plans for an order: live ranges that say which buffers may be alive together when dispatches are reordered.

What touches one buffer is over before anything touches another: a partial order.  Positions are added to
those of the text, one for each of some antichains, until any two that may be alive together have one in
common.  The floor is the heaviest antichain, found by a maximum flow (Dilworth, A decomposition theorem for
partially ordered sets, 1950).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from symalloc.analysis.dependencies import HappensBefore, Touch
from symalloc.analysis.liveness import Intervals
from symalloc.analysis.register_machine import Reservation
from symalloc.analysis.timeline import Timeline
from symalloc.planner.grid import Ranges, matrix_product, sample_grid, score_grid
from symalloc.planner.interference import interference
from symalloc.planner.memory_plan import Buffer
from symalloc.program.ir import Var
from symalloc.prover.domain import Domain
from symalloc.size.expr import Expr

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


def cost_beside(plan: HeldInOrder | Timeline, other: Timeline, domain: Domain) -> float | None:
    """Return how much more a call with one plan may take, also in any order, than with another in that of the
    text, at most among the samples of `domain`: 0.2 is a fifth more.  None where that is not known.
    """
    taken = (*plan.taken(), *other.taken())
    grid = sample_grid(domain, sorted({name for r in taken if r.size for name in r.size.symbols}))
    pairs = [(plan.peak(at), other.peak(at)) for at in map(grid.binding, range(len(grid)))]
    found = [mine / max(theirs, 1) for mine, theirs in pairs if mine is not None and theirs is not None]
    return max(found) - 1.0 if len(found) == len(pairs) and found else None


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
