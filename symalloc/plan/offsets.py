"""Offsets of a stacking: off_i = max over those below of off_j + size_j, simplified by proved dominance.

An offset is kept as its alternatives (their maximum is meant), so that sums distribute and most maxima
vanish before an expression is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from symalloc.plan.model import Buffer
from symalloc.plan.stacking import Stacking
from symalloc.prove.domain import Domain
from symalloc.prove.prover import Prover
from symalloc.prove.verdict import Verdict
from symalloc.size.condition import le
from symalloc.size.expr import ZERO, Expr
from symalloc.size.operations import maximum

__all__ = ["Alternatives", "arena_size", "offsets", "prune"]

Alternatives: TypeAlias = tuple[Expr, ...]

MOST_ALTERNATIVES = 8  # beyond it a maximum becomes one opaque expression: sums over it no longer distribute


def offsets(
    buffers: Sequence[Buffer], stacking: Stacking, domain: Domain, prover: Prover
) -> dict[int, Alternatives]:
    """For each buffer id the alternatives whose maximum is its offset."""
    sizes = {b.id: b.size for b in buffers}
    found: dict[int, Alternatives] = {}
    for current in stacking.order:
        tops = (
            alternative + sizes[j]
            for j in _uppermost(stacking.below[current], stacking.below)
            for alternative in found[j]
        )
        found[current] = prune(tops, domain, prover)
    return found


def arena_size(
    buffers: Sequence[Buffer], placed: Mapping[int, Alternatives], domain: Domain, prover: Prover
) -> Expr:
    """The height of the whole stacking in bytes."""
    tops = (alternative + b.size for b in buffers for alternative in placed[b.id])
    return maximum(*prune(tops, domain, prover))


def prune(candidates: Iterable[Expr], domain: Domain, prover: Prover) -> Alternatives:
    """The candidates that no other is proved to reach: at least one is left; zero where there are none."""
    kept: list[Expr] = []
    for candidate in sorted(set(candidates), key=lambda e: (-len(e.terms), e.key)):
        if any(_reaches(other, candidate, domain, prover) for other in kept):
            continue
        kept = [other for other in kept if not _reaches(candidate, other, domain, prover)]
        kept.append(candidate)
    if len(kept) > MOST_ALTERNATIVES:
        return (maximum(*kept),)
    return tuple(sorted(kept, key=lambda e: e.key)) or (ZERO,)


def _reaches(high: Expr, low: Expr, domain: Domain, prover: Prover) -> bool:
    verdict = prover.prove(le(low, high), domain, explain=False).verdict
    return verdict is Verdict.ALWAYS_VALID


def _uppermost(below: frozenset[int], all_below: Mapping[int, frozenset[int]]) -> list[int]:
    """Those of `below` under which no other of them lies above: the rest cannot decide the offset."""
    covered = frozenset().union(*(all_below[j] & below for j in below))
    return sorted(below - covered)
