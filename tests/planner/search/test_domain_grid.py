"""Bindings inside a domain."""

from __future__ import annotations

from symalloc.planner.search.domain_grid import sample_grid
from symalloc.prover.domain import Domain
from symalloc.size.condition import le
from symalloc.size.expr import symbol

N = symbol("n")


def test_samples_lie_inside_the_domain() -> None:
    domain = Domain(lower={"n": 5}, upper={"m": 3}, assumptions=(le(N, 200),))
    found = sample_grid(domain, ("m", "n"))
    assert found.points and all(domain.contains(found.binding(i)) for i in range(len(found)))
    assert not sample_grid(Domain(assumptions=(le(N, -1),)), ("n",)).points
    assert not sample_grid(Domain(lower={"n": 5}, upper={"n": 4}), ("n",)).points
    assert sample_grid(Domain(), ()).binding(0) == {}
