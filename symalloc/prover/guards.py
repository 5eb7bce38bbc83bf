"""Minimising sets of guards: what the others imply need not be checked."""

from __future__ import annotations

from collections.abc import Sequence

from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.size.condition import And, Condition

__all__ = ["minimise"]


def minimise(guards: Sequence[Condition], domain: Domain, prover: Prover) -> tuple[Condition, ...]:
    """A subset of `guards` (conjunctions taken apart) that implies all of them over `domain`, in their order.

    Longer conditions are dropped first, so that the cheapest checks remain.  What cannot be proved to
    follow stays.
    """
    parts = dict.fromkeys(p for g in guards for p in (g.operands if isinstance(g, And) else (g,)))
    kept = [p for p in parts if prover.prove(p, domain, explain=False).verdict is not Verdict.ALWAYS_VALID]
    for guard in sorted(kept, key=lambda g: (-len(g.key), g.key)):
        others = [g for g in kept if g != guard]
        if others and prover.implies(others, guard, domain):
            kept = others
    return tuple(kept)
