"""The edges that a finished plan, anybody's, needs besides those of the dependency graph."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from symalloc.analysis.dependencies import DependencyGraph, dependency_graph
from symalloc.analysis.happens_before import HappensBefore, fences, placed_together
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.prover.domain import Domain
from symalloc.prover.effort import Budget
from symalloc.prover.prover import Prover
from symalloc.size.condition import disjunction, eq, le
from symalloc.size.expr import ZERO, Expr


def fenced_graph(analysis: FunctionAnalysis, domain: Domain) -> DependencyGraph:
    """Return the graph of a function with the fences of the plan that is written into it: an executor that
    keeps all edges computes what the order of the text does, at every shape of `domain`.

    z3 is not asked: what is not proved to lie apart costs a fence at most.
    """
    graph = dependency_graph(analysis)
    return graph.with_edges(fences(graph, sharing(graph, domain, Prover(Budget(z3_steps=0)))))


def sharing(graph: DependencyGraph, domain: Domain, prover: Prover) -> Iterator[tuple[int, int]]:
    """Yield the pairs of memories that may have bytes in common and be alive together in some order."""
    relation = HappensBefore(graph=graph, order="dag")

    @cache
    def disjoint(start: Expr | None, nbytes: Expr | None, other: Expr | None, more: Expr | None) -> bool:
        if start is None or nbytes is None or other is None or more is None:
            return False
        apart = le(start + nbytes, other), le(other + more, start), eq(nbytes, ZERO), eq(more, ZERO)
        return prover.prove(disjunction(apart), domain, explain=False).holds

    for pair in placed_together(graph):
        if not relation.apart(*pair):
            one, other = (graph.points_to.regions[number] for number in pair)
            if not disjoint(one.offset, one.nbytes, other.offset, other.nbytes):
                yield pair
