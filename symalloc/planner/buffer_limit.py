"""The limit of one buffer, which some devices have: an arena takes no more, or what its largest tensor takes.

Shapes within the declared bounds count: beyond them an arena may be larger.  That is no matter of safety, so
nothing is checked when a plan runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from symalloc.planner.enforced_bounds import within
from symalloc.planner.grid import TYPICAL
from symalloc.planner.memory_plan import Arena, Buffer, TooLarge, Unplanned
from symalloc.planner.shapes import FARTHEST, symbols_of
from symalloc.program.ir import Function, declared_bounds
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.condition import disjunction, le
from symalloc.size.evaluation import highest
from symalloc.size.expr import Expr


def edges(sizes: Sequence[Expr], upper: Mapping[str, int], limit: int) -> Iterator[Mapping[str, int]]:
    """Yield bindings at which all `sizes` are within `limit`, the largest with all symbols alike, and with
    all but one as they typically are: an arena takes most there.
    """
    names = symbols_of(sizes)
    for moved in dict.fromkeys((names, *((name,) for name in names))):

        def at(value: int, moved: Sequence[str] = moved) -> Mapping[str, int]:
            wanted = {name: value if name in moved else TYPICAL for name in names}
            return {name: min(extent, upper.get(name, extent)) for name, extent in wanted.items()}

        def exceeds(value: int) -> bool:
            most = highest(sizes, at(value))
            return most is None or most > limit

        largest = bisect_left(range(1 << 2 * FARTHEST), True, key=exceeds) - 1
        if largest >= 0:
            yield at(largest)


def bounded(function: Function, domain: Domain) -> Domain:
    """Return `domain` within all bounds that `function` declares."""
    return within(domain, declared_bounds(function))


def beyond(
    arenas: Iterable[Arena], limit: int, domain: Domain, prover: Prover
) -> Iterator[Mapping[str, int]]:
    """Yield a binding, if known, for each arena that is not proved to take at most the limit, or as much as
    its largest tensor.
    """
    for arena in arenas:
        sizes = dict.fromkeys(p.buffer.size for p in arena.placements)
        if arena.size in sizes or arena.placements[0].buffer.grounded:  # as large as the largest there
            continue
        proof = prover.prove(le(arena.size, limit), domain, explain=False)
        if not proof.holds:
            keeps = disjunction((le(arena.size, limit), *(le(arena.size, size) for size in sizes)))
            proof = prover.prove(keeps, domain)
        if not proof.holds:
            yield proof.counterexample or {}


def too_large(
    buffers: Iterable[Buffer], left: Iterable[Unplanned], limit: int, domain: Domain, prover: Prover
) -> Iterator[TooLarge]:
    """Yield the tensors that can take more than `limit` by themselves, one for those of each size."""
    named: dict[Expr, list[str]] = {}
    for name, size in (*((b.name, b.size) for b in buffers), *((u.name, u.nbytes) for u in left)):
        if size is not None:
            named.setdefault(size, []).append(name)
    for size, names in named.items():
        proof = prover.prove(le(size, limit), domain)
        if not proof.holds:
            at = proof.counterexample or {}
            yield TooLarge(name=names[0], size=size, limit=limit, alike=len(names), at=at)
