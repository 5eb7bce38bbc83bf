"""The checks at function entry: that no byte count of the plan leaves 64-bit arithmetic, and declared bounds.

A plan's expressions are proved over the integers; the VM evaluates them modulo 2**64.  `overflow_guards`
bounds the magnitude of everything that is evaluated on the way by a polynomial with positive
coefficients, and asks that the polynomial stays below 2**63.  In these polynomials a symbol that the domain
lets be negative stands for its magnitude.  The check itself must not wrap either: see `machine_check`.

TVM only declares `tir_var_upper_bound` and its kin.  Checked at entry they become facts, on which proofs may
rely and at which memory may be reserved.  Some devices limit one buffer: an arena takes no more, or what its
largest tensor takes.  Shapes within the declared bounds count: beyond them an arena may be larger.  Nothing
is unsafe then, so nothing is checked.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import reduce
from itertools import islice, product, repeat
from math import lcm
from operator import add
from typing import TypeAlias

from symalloc.planner.grid import FARTHEST, TYPICAL, symbols_of
from symalloc.planner.memory_plan import Arena, BoundsUse, Buffer, Guard, TooLarge, Unplanned
from symalloc.program.ir import DeclaredBound, Function, declared_bounds
from symalloc.program.types import ALIGNMENT
from symalloc.prover.domain import INT64_MAX, Box, Domain, interval
from symalloc.prover.prover import Prover
from symalloc.size.choice import Max, Min, Select, maximum, minimum, with_inner
from symalloc.size.condition import FALSE, Condition, conjunction, disjunction, le
from symalloc.size.expr import (
    Atom,
    Expr,
    FloorDiv,
    Mod,
    Monomial,
    constant,
    evaluated,
    floordiv,
    highest,
    multiply,
    symbol,
)

Bound: TypeAlias = tuple[Mapping[Monomial, int], int]
"""A polynomial over magnitudes of symbols, coefficients >= 0, and what all of them are to be divided by."""

_UNIT: Bound = {(): 1}, 1


class ValueBounds:
    """Bounds of expressions and of the atoms in them, each worked out once."""

    __slots__ = ("_atoms", "_exprs")

    def __init__(self) -> None:
        self._exprs: dict[Expr, Bound] = {}
        self._atoms: dict[Atom, Bound] = {}

    def magnitude(self, expr: Expr) -> Expr:
        """A polynomial in the magnitudes of the symbols that is >= |expr| and >= the magnitude of each sum of
        its terms.
        """
        terms, scale = self._expr(expr)
        return Expr({m: -(-c // scale) for m, c in terms.items() if c})

    def _expr(self, expr: Expr) -> Bound:
        found = self._exprs.get(expr)
        if found is None:
            powers = ([self._atom(a) for a, power in m for _ in range(power)] for m in expr.terms)
            parts = [reduce(_times, factors, _UNIT) for factors in powers]
            found = self._exprs[expr] = _sum_of(parts, map(abs, expr.terms.values()))
        return found

    def _atom(self, atom: Atom) -> Bound:
        found = self._atoms.get(atom)
        if found is None:
            found = self._atoms[atom] = self._bound(atom)
        return found

    def _bound(self, atom: Atom) -> Bound:
        match atom:
            case FloorDiv(numerator=numerator, denominator=denominator):
                # |n // d| <= |n| / d, but for -1 // d, which is -1: one is added for the rounding
                divisor = denominator.as_constant
                terms, scale = self._expr(numerator)
                if not divisor or divisor < 0:
                    return terms, scale
                return {**terms, (): terms.get((), 0) + scale * divisor}, scale * divisor
            case Mod(numerator=numerator, denominator=denominator):
                return _sum_of([self._expr(numerator), self._expr(denominator)])
            case Min(operands=operands) | Max(operands=operands):
                # a minimum is at most each operand, and no constant >= 0 where it is negative; a maximum
                # mirrors it
                sign = 1 if isinstance(atom, Min) else -1
                bounding = [e for e in operands if e.as_constant is None or sign * e.as_constant < 0]
                return _sum_of(map(self._expr, bounding or operands), combine=max)
            case Select(then=then, otherwise=otherwise):
                return _sum_of([self._expr(then), self._expr(otherwise)], combine=max)
        return {((atom, 1),): 1}, 1


def _sum_of(
    bounds: Iterable[Bound], factors: Iterable[int] = repeat(1), combine: Callable[[int, int], int] = add
) -> Bound:
    """The sum of `bounds` times `factors`; with `max` for `combine` a bound of each, because all terms are >=
    0.
    """
    parts = list(bounds)
    scale = lcm(*(own for _, own in parts))
    total: dict[Monomial, int] = {}
    for (terms, own), factor in zip(parts, factors, strict=False):
        for monomial, c in terms.items():
            total[monomial] = combine(total.get(monomial, 0), factor * c * (scale // own))
    return total, scale


def _times(left: Bound, right: Bound) -> Bound:
    return _sum_of(
        ({multiply(a, b): x * y for a, x in left[0].items()}, left[1] * right[1]) for b, y in right[0].items()
    )


LARGE = 2**20  # an extent at which bounds are compared first


def guards(arenas: Sequence[Arena], domain: Domain, prover: Prover) -> tuple[Guard, ...]:
    """The checks that the expressions of `arenas` need: at entry, and behind what late arenas wait for.

    What holds at entry holds later: it is not asked again.
    """
    late = dict.fromkeys(arena.defined_by for arena in arenas if arena.defined_by is not None)
    found: list[Guard] = []
    for point in (None, *late):
        values = {
            e for a in arenas if a.defined_by == point for e in (a.size, *(p.offset for p in a.placements))
        }
        known = domain.assuming(g.condition for g in found if g.defined_by is None)
        found += (replace(g, defined_by=point) for g in overflow_guards(values, known, prover))
    return tuple(found)


def overflow_guards(evaluated: Iterable[Expr], domain: Domain, prover: Prover) -> tuple[Guard, ...]:
    """Checks under which no intermediate value of the `evaluated` expressions reaches 2**63.

    There is at most one check for each symbol by itself, `n <= K`, with a second one, `-K <= n`, for a symbol
    that may be negative; and one polynomial for all bounds in several symbols.  What is seen to follow from
    the others, or proved by what is assumed, is left out.
    """
    magnitude_of = ValueBounds().magnitude
    bounds = {magnitude_of(part) for part in with_inner(evaluated)}
    if any((bound.as_constant or 0) > INT64_MAX for bound in bounds):
        return (Guard(condition=FALSE, check=FALSE),)
    joint = _largest_terms(b for b in bounds if len(b.symbols) > 1)
    single = _tightest((b for b in bounds if len(b.symbols) == 1), _limits(joint, domain))
    needed = [*single, *([joint] if joint.terms else [])]
    signed = frozenset(name for bound in needed for name in bound.symbols if domain.lower_of(name) < 0)
    checks = {demand: check for bound in needed for demand, check in _demands(bound, signed)}
    wanted = (c for c in checks if not prover.prove(c, domain, explain=False).holds)
    return tuple(Guard(condition=c, check=checks[c]) for c in wanted)


def _limits(joint: Expr, domain: Domain) -> dict[str, int]:
    """The limits of symbols that are not negative where `joint` is limited: by its terms in them alone."""
    names = [name for name in joint.symbols if domain.lower_of(name) >= 0]
    alone = (Expr({m: c for m, c in joint.terms.items() if all(a.key == n for a, _ in m)}) for n in names)
    return {name: _largest(bound) for name, bound in zip(names, alone, strict=True) if bound.symbols}


def _tightest(bounds: Iterable[Expr], limits: dict[str, int]) -> list[Expr]:
    """For each symbol the one of `bounds`, which have one symbol each, that lets it grow least, if that is
    less far than to its limit.
    """
    chosen: dict[str, Expr] = {}
    growth = {bound: -bound.evaluate(dict.fromkeys(bound.symbols, LARGE)) for bound in bounds}
    for bound in sorted(growth, key=lambda e: (growth[e], e.key)):  # the tightest is likely the first
        (name,) = bound.symbols
        if bound.evaluate({name: limits.get(name, INT64_MAX + 1)}) > INT64_MAX:
            chosen[name], limits[name] = bound, _largest(bound)
    return [chosen[name] for name in sorted(chosen)]


def _largest_terms(bounds: Iterable[Expr]) -> Expr:
    """The polynomial with the largest coefficient of each term: it is at least each of `bounds`."""
    terms: dict[Monomial, int] = {}
    for bound in bounds:
        for monomial, coefficient in bound.terms.items():
            terms[monomial] = max(coefficient, terms.get(monomial, 0))
    return Expr(dict(sorted(terms.items(), key=str)))


def machine_check(bound: Expr, signed: Set[str] = frozenset()) -> Condition:
    """A condition that implies `bound <= 2**63 - 1` and never leaves 64 bits when it is evaluated itself.

    `bound` has positive coefficients over symbols that are >= 0, those in `signed` aside, of which it is the
    magnitude that counts.  In one symbol the check is exact, `n <= K`.
    Otherwise each term c*x*y gets its share L of the space, as x <= L // c and y <= L // c // max(x, 1):
    rooms only shrink, and nothing is multiplied.
    """
    if len(bound.symbols) == 1:
        (name,) = bound.symbols
        return conjunction(_within(name, constant(_largest(bound)), signed))
    terms = _maximal_terms(bound)
    share = INT64_MAX // len(terms)
    return conjunction(
        part for factors, c in terms.items() for part in _term_checks(factors, c, share, signed)
    )


def _demands(bound: Expr, signed: Set[str]) -> Iterator[tuple[Condition, Condition]]:
    """Yield the conditions that the guards demand, each with the check that the machine evaluates."""
    if len(bound.symbols) > 1:
        sizes = {name: maximum(symbol(name), -symbol(name)) for name in signed}
        yield le(bound.substitute(sizes), INT64_MAX), machine_check(bound, signed)
        return
    (name,) = bound.symbols
    limit = constant(_largest(bound))
    demanded = (le(symbol(name), limit), le(-limit, symbol(name)))
    yield from zip(demanded, _within(name, limit, signed), strict=False)


def _within(name: str, room: Expr, signed: Set[str]) -> Iterator[Condition]:
    """Yield that the magnitude of a symbol is at most `room`, which is >= 0; nothing in it wraps."""
    yield le(symbol(name), room)
    if name in signed:
        yield le(-room, minimum(symbol(name), 0))


# -- checks in machine arithmetic --------------------------------------------------------------------------


def _largest(bound: Expr) -> int:
    """The greatest value of the only symbol at which `bound` stays below 2**63; at least 0."""
    (name,) = bound.symbols
    return bisect_right(range(1, INT64_MAX + 1), INT64_MAX, key=lambda value: bound.evaluate({name: value}))


def _maximal_terms(bound: Expr) -> dict[tuple[str, ...], int]:
    """Terms as {factors: coefficient}, each added to one that it divides: n <= max(b, 1)*n wherever n >=
    0.
    """
    merged: dict[tuple[str, ...], int] = {}
    for monomial, coefficient in sorted(
        bound.terms.items(), key=lambda t: (-sum(p for _, p in t[0]), str(t[0]))
    ):
        factors = tuple(sorted(atom.key for atom, power in monomial for _ in range(power)))
        divided = (o for o in merged if all(factors.count(f) <= o.count(f) for f in factors))
        host = next(divided, factors)
        merged[host] = merged.get(host, 0) + coefficient
    return merged


def _term_checks(factors: tuple[str, ...], coefficient: int, share: int, signed: Set[str]) -> list[Condition]:
    room = constant(share // min(coefficient, share))
    checks = [le(coefficient, share)]
    for name in factors:
        checks += _within(name, room, signed)
        divisor = maximum(symbol(name), 1)
        if name in signed:  # the magnitude of -2**63 is taken to be one less
            divisor = maximum(divisor, -maximum(symbol(name), -INT64_MAX))
        room = floordiv(room, divisor)
    return checks


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
