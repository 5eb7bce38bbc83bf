"""The edges that a finished plan, anybody's, needs besides those of the dependency graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache, partial, reduce
from operator import itemgetter
from typing import NamedTuple

from symalloc.analysis.dependencies import DependencyGraph, Edge, EdgeKind, dependency_graph
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.prover.domain import Budget, Domain
from symalloc.prover.prover import Prover
from symalloc.size.condition import disjunction, eq, le
from symalloc.size.expr import ZERO, Expr


class TensorPlace(NamedTuple):
    """The bytes of a tensor on a storage, the region `root`; None for what is not known."""

    root: int
    offset: Expr | None = None
    nbytes: Expr | None = None


def fenced_graph(analysis: FunctionAnalysis, domain: Domain) -> DependencyGraph:
    """Return the graph of a function with the fences of the plan that is written into it: an executor that
    keeps all edges computes what the order of the text does, at every shape of `domain`.
    """
    graph = dependency_graph(analysis)
    regions = {number: graph.points_to.regions[number] for number in graph.touches}
    places = {n: TensorPlace(r.root, r.offset, r.nbytes) for n, r in regions.items() if r.parent is not None}
    return graph.with_edges(fences(graph, places, domain))


def fences(graph: DependencyGraph, places: Mapping[int, TensorPlace], domain: Domain) -> tuple[Edge, ...]:
    """Return the edges that keep the order of the program between memories that share bytes, as few as
    suffice beside those of `graph`.

    What has written a place waits for all that touched it before: the next has to wait for it, and for those
    that have read the place since.  z3 is not asked: what is not proved to lie apart costs a fence at most.
    """
    apart = cache(partial(_apart, Prover(Budget(z3_steps=0)), domain))
    uses = defaultdict[int, list[tuple[bool, TensorPlace, str]]](list)  # by dispatch; True: it writes
    for memory, place in places.items():
        name = graph.points_to.regions[memory].name
        for touch in graph.touches.get(memory, ()):
            uses[touch.dispatch].append((touch.writes, place, name))
    since = defaultdict[TensorPlace, dict[int, tuple[bool, str]]](dict)
    found: list[Edge] = []
    ahead: list[int] = []
    for number, waits in enumerate(graph.predecessors):
        known = reduce(lambda known, n: known | ahead[n] | 1 << n, waits, 0)
        here = sorted(uses[number], key=itemgetter(0))
        due = [
            (early, other, one, f"{lost} / {name}")
            for writes, one, name in here
            for other, before in since.items()
            for early, (wrote, lost) in before.items()
            if (writes or wrote) and one.root == other.root and not known >> early & 1
        ]
        for early, other, one, names in sorted(due, key=itemgetter(0), reverse=True):
            if not known >> early & 1 and not apart(other, one):
                found.append(Edge(early, number, EdgeKind.FENCE, (names,)))
                known |= ahead[early] | 1 << early
        ahead.append(known)
        for writes, one, name in here:
            since[one] = {**({} if writes else since[one]), number: (writes, name)}
    return tuple(found)


def _apart(prover: Prover, domain: Domain, one: TensorPlace, other: TensorPlace) -> bool:
    """True if two places of one storage are proved to have no byte in common."""
    if one.offset is None or one.nbytes is None or other.offset is None or other.nbytes is None:
        return False
    ends = le(one.offset + one.nbytes, other.offset), le(other.offset + other.nbytes, one.offset)
    empty = eq(one.nbytes, ZERO), eq(other.nbytes, ZERO)
    return prover.prove(disjunction((*ends, *empty)), domain, explain=False).holds
