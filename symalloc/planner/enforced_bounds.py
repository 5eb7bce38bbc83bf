"""Declared bounds that a plan enforces: guards at entry, the domain within them, constants that hold there.

TVM only declares `tir_var_upper_bound` and its kin.  Checked at entry they become facts, on which proofs may
rely and at which memory may be reserved.

Some devices limit one buffer: an arena takes no more, or what its largest tensor takes.  Shapes within the
declared bounds count: beyond them an arena may be larger.  Nothing is unsafe then, so nothing is checked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product

from symalloc.planner.grid import FARTHEST, TYPICAL, symbols_of
from symalloc.planner.memory_plan import Arena, BoundsUse, Buffer, Guard, TooLarge, Unplanned
from symalloc.program.ir import DeclaredBound, Function, declared_bounds
from symalloc.program.types import ALIGNMENT
from symalloc.prover.domain import INT64_MAX, Box, Domain, interval
from symalloc.prover.prover import Prover
from symalloc.size.condition import disjunction, le
from symalloc.size.expr import Expr, evaluated, highest

MOST_CORNERS = 64  # of the box of bounds, at which a size is evaluated
MOST_BYTES = 2**47  # that a factor in a size or a reserved bound may have; sums of many stay in 64 bits


def enforced(
    function: Function, domain: Domain, use: BoundsUse, sized_by: Collection[str] = ()
) -> tuple[DeclaredBound, ...]:
    """Return the declared bounds that are checked at entry, less those that `domain` implies.

    "auto" checks no more than it needs: upper bounds of the symbols that memory is `sized_by`.
    """
    if use == "ignore":
        return ()
    bounds = declared_bounds(function)
    if use == "auto":
        bounds = tuple(b for b in bounds if b.is_upper and b.symbol in sized_by)
    return tuple(
        b
        for b in bounds
        if (domain.upper_of(b.symbol) > b.value if b.is_upper else domain.lower_of(b.symbol) < b.value)
    )


def bound_guards(bounds: Iterable[DeclaredBound]) -> tuple[Guard, ...]:
    """Return a check at entry for each of `bounds`."""
    return tuple(Guard(condition=b.condition, check=b.condition, declared=True) for b in bounds)


def within(domain: Domain, bounds: Iterable[DeclaredBound]) -> Domain:
    """Return `domain` where all of `bounds` hold."""
    for bound in bounds:
        name, value = bound.symbol, bound.value
        if bound.is_upper:
            domain = replace(domain, upper={**domain.upper, name: min(value, domain.upper_of(name))})
        else:
            domain = replace(domain, lower={**domain.lower, name: max(value, domain.lower_of(name))})
    return domain


def greatest(size: Expr, domain: Domain, prover: Prover) -> int | None:
    """Return bytes, a multiple of ALIGNMENT, that `size` is proved never to exceed; None where nothing bounds
    it, or only by more than MOST_BYTES.

    It is the largest value at the corners of the domain where that is proved to be the largest, else the
    bound of interval arithmetic.
    """
    names = sorted(size.symbols)
    if any(domain.upper_of(name) >= INT64_MAX for name in names):
        return None
    box = Box({n: domain.lower_of(n) for n in names}, {n: domain.upper_of(n) for n in names})
    high = _aligned(interval(size, box)[1])
    low = min(max((_aligned(value) for value in _at_corners(size, box)), default=0), high)
    if low <= MOST_BYTES and prover.prove(le(size, low), domain, explain=False).holds:
        return low
    return high if high <= MOST_BYTES else None


def _at_corners(size: Expr, box: Box) -> Iterator[int]:
    """Yield the values of `size` at corners of `box`, all upper bounds first; none where a divisor is 0."""
    axes = [dict.fromkeys((box.upper[name], box.lower[name])) for name in box.lower]
    corners = (dict(zip(box.lower, corner, strict=True)) for corner in product(*axes))
    values = (evaluated(size, corner) for corner in islice(corners, MOST_CORNERS))
    return (value for value in values if value is not None)


def _aligned(nbytes: int) -> int:
    """Return the bytes rounded up to ALIGNMENT, at least none."""
    return max(-(-nbytes // ALIGNMENT) * ALIGNMENT, 0)


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
