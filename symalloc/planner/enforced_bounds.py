"""Declared bounds that a plan enforces: guards at entry, the domain within them, constants that hold there.

TVM only declares `tir_var_upper_bound` and its kin.  Checked at entry they become facts, on which proofs may
rely and at which memory may be reserved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice, product

from symalloc.planner.memory_plan import Guard
from symalloc.planner.planner_options import BoundsUse
from symalloc.program.ir import DeclaredBound, Function, declared_bounds
from symalloc.program.types import ALIGNMENT
from symalloc.prover.bounds import Box, interval
from symalloc.prover.domain import INT64_MAX, Domain
from symalloc.prover.prover import Prover
from symalloc.size.condition import le
from symalloc.size.expr import Expr

MOST_CORNERS = 64  # of the box of bounds, at which a size is evaluated
MOST_BYTES = 2**47  # that a factor in a size or a reserved bound may have; sums of many stay in 64 bits
MOST_HALVINGS = 12  # of the gap between the largest size that was seen and one that is proved


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

    It is the largest value at the corners of the domain where that is proved to be the largest; else what a
    counted number of halvings between there and the bound of interval arithmetic proves.
    """
    names = sorted(size.symbols)
    if any(domain.upper_of(name) >= INT64_MAX for name in names):
        return None
    box = Box({n: domain.lower_of(n) for n in names}, {n: domain.upper_of(n) for n in names})
    high = _aligned(interval(size, box)[1])
    low = min(max((_aligned(value) for value in _at_corners(size, box)), default=0), high)
    if low > MOST_BYTES:
        return None
    if _at_most(size, low, domain, prover):
        return low
    for _ in range(MOST_HALVINGS):
        middle = _aligned((low + high) // 2)
        if middle >= high:
            break
        if _at_most(size, middle, domain, prover):
            high = middle
        else:
            low = middle
    return high if high <= MOST_BYTES else None


def _at_corners(size: Expr, box: Box) -> Iterator[int]:
    """Yield the values of `size` at corners of `box`, all upper bounds first; none where a divisor is 0."""
    axes = [dict.fromkeys((box.upper[name], box.lower[name])) for name in box.lower]
    for corner in islice(product(*axes), MOST_CORNERS):
        try:
            yield size.evaluate(dict(zip(box.lower, corner, strict=True)))
        except ZeroDivisionError:
            continue


def _at_most(size: Expr, limit: int, domain: Domain, prover: Prover) -> bool:
    return prover.prove(le(size, limit), domain, explain=False).holds


def _aligned(nbytes: int) -> int:
    """Return the bytes rounded up to ALIGNMENT, at least none."""
    return max(-(-nbytes // ALIGNMENT) * ALIGNMENT, 0)
