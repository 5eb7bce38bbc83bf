"""Normalized domains: a domain made ready for proofs about some of its symbols.

Assumptions that share no symbol with a claim, directly or through others, are left out; bounds are read off
those in one symbol; equalities and `n % c == r` are solved and substituted, so that what remains has fewer
symbols and fewer facts. The substitution is exact: points of the domain are, one to one, points of the
domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import TypeVar

from symalloc.prover.domain import Box, Domain, decide, interval
from symalloc.size.choice import holds
from symalloc.size.condition import Condition, Relation, ge, le
from symalloc.size.expr import Atom, Division, Expr, Mod, Symbol, constant, symbol


def put(condition: Condition, old: Atom, new: Expr) -> Condition:
    """`condition` with the atom `old` replaced at every depth."""
    return condition.rewrite(lambda atom: new if atom == old else None)


def periods(conditions: Iterable[Condition]) -> dict[str, int]:
    """A period of the quotients and remainders by constants in `conditions`, for each symbol in them."""
    found: dict[str, int] = {}
    for condition in conditions:
        for expr in condition.exprs:
            _collect(expr, 1, found)
    return found


def _collect(expr: Expr, outer: int, found: dict[str, int]) -> None:
    """Multiply up nested constant divisors; every symbol below gets a multiple of their product."""
    for atom in expr.atoms:
        if not isinstance(atom, Division):
            for operand in atom.operands:
                _collect(operand, outer, found)
            continue
        step = outer * (atom.denominator.as_constant or 1)
        for name in atom.numerator.symbols if step > 1 else ():
            found[name] = lcm(found.get(name, 1), step)
        _collect(atom.numerator, step, found)
        _collect(atom.denominator, outer, found)


Told = TypeVar("Told", Expr, Condition)
Solution = tuple[
    str, Expr, tuple[str, int, int] | None
]  # a symbol, its value, and a new symbol in it with its bounds


@dataclass(slots=True, kw_only=True)
class NormalizedDomain:
    """The points of `box` that satisfy `facts`.

    `solved` gives the domain's other symbols in terms of those in `box`.
    """

    names: tuple[str, ...]  # of the domain
    box: Box
    facts: tuple[Condition, ...] = ()
    solved: dict[str, Expr] = field(default_factory=dict)
    empty: bool = False
    points: list[dict[str, int]] = field(default_factory=list)  # known to lie inside, in terms of `box`
    sampled: bool = False  # all points that sampling finds are there
    asked: bool = False  # whether there is a point was put to z3

    def to_domain(self, point: Mapping[str, int]) -> dict[str, int]:
        """The point of the domain that stands for `point`."""
        return {n: self.solved[n].evaluate(point) if n in self.solved else point[n] for n in self.names}

    def reduce(self, told: Told) -> Told:
        """`told` in terms of the symbols of `box`."""
        return told.substitute(self.solved) if self.solved else told

    def bounds(self) -> Box:
        """The bounds of the domain's symbols, as far as the assumptions on single symbols narrow them."""
        ranges = {n: interval(self.reduce(symbol(n)), self.box) for n in self.names}
        return Box({n: r[0] for n, r in ranges.items()}, {n: r[1] for n, r in ranges.items()})

    def positive(self, divisor: Expr) -> bool:
        """True if `divisor`, in terms of the domain's symbols, is at least 1 by bounds alone."""
        return interval(self.reduce(divisor), self.box)[0] >= 1


def components(assumptions: Iterable[Condition]) -> list[tuple[frozenset[str], tuple[Condition, ...]]]:
    """The assumptions in groups that share no symbols."""
    groups: list[tuple[frozenset[str], tuple[Condition, ...]]] = []
    for assumption in assumptions:
        if assumption.as_bool is not None:
            if assumption.as_bool is False:
                return [(frozenset(), (assumption,))]
            continue
        names = assumption.symbols
        members: tuple[Condition, ...] = (assumption,)
        apart = []
        for group in groups:
            if group[0].isdisjoint(names):
                apart.append(group)
            else:
                names, members = names | group[0], (*group[1], *members)
        groups = [*apart, (names, members)]
    return groups


def relevant(
    groups: Iterable[tuple[frozenset[str], tuple[Condition, ...]]], symbols: frozenset[str]
) -> tuple[frozenset[str], tuple[Condition, ...]]:
    """`symbols` and all that the assumptions tie to them, and those assumptions; also any without symbols."""
    names = symbols
    chosen: tuple[Condition, ...] = ()
    for group in groups:
        if not group[0] or not group[0].isdisjoint(symbols):
            names, chosen = names | group[0], (*chosen, *group[1])
    return names, chosen


def normalize(domain: Domain, names: frozenset[str], assumptions: Sequence[Condition]) -> NormalizedDomain:
    """The points of `domain` in the terms of `names`, under `assumptions`."""
    ordered = tuple(sorted(names))
    box = Box({n: domain.lower_of(n) for n in ordered}, {n: domain.upper_of(n) for n in ordered})
    normalized = NormalizedDomain(names=ordered, box=box)
    normalized.empty = any(box.lower[n] > box.upper[n] for n in ordered)
    if assumptions and not normalized.empty:
        absorb(normalized, assumptions)
    return normalized


def absorb(domain: NormalizedDomain, assumptions: Sequence[Condition]) -> None:
    """Restrict `domain` to `assumptions`."""
    pending = [c for a in assumptions for c in holds(a, domain.positive).conjuncts]
    for _ in range(4 * len(pending) + 8):
        pending = _narrow(domain, pending)
        if domain.empty:
            return
        step = _next_solution(pending, domain)
        if step is None:
            break
        name, value, fresh = step
        pending = _substitute(domain, pending, name, value, fresh)
    settled = [(c, decide(c, domain.box)) for c in pending]
    domain.facts = tuple(c for c, value in settled if value is not True)
    domain.empty = domain.empty or any(value is False for _, value in settled)


def _narrow(domain: NormalizedDomain, pending: list[Condition]) -> list[Condition]:
    """Turn facts on one symbol into bounds until nothing changes."""
    rest = []
    for condition in pending:
        bound = read_bound(condition)
        if bound is None:
            if condition.as_bool is False:
                domain.empty = True
            elif condition.as_bool is None:
                rest.append(condition)
        elif not domain.box.narrow(*bound):
            domain.empty = True
    return rest


def read_bound(condition: Condition) -> tuple[str, int | None, int | None] | None:
    """`(symbol, least, greatest)` where `condition` says exactly that."""
    if not isinstance(condition, Relation) or condition.operator == "!=":
        return None
    atom, sign, offset = _signed_atom(condition.expr)
    if not isinstance(atom, Symbol):
        return None
    if condition.operator == "==":
        return atom.name, -offset * sign, -offset * sign
    return (atom.name, None, -offset) if sign > 0 else (atom.name, offset, None)


def _signed_atom(expr: Expr) -> tuple[Atom | None, int, int]:
    """`(atom, sign, offset)` where `expr` is `sign*atom + offset`, the sign 1 or -1; no atom otherwise."""
    linear = [(m, c) for m, c in expr.terms.items() if m] if len(expr.terms) <= 2 else []
    if len(linear) != 1 or len(linear[0][0]) != 1 or abs(linear[0][1]) != 1:
        return None, 0, 0
    ((((atom, power),), sign),) = linear
    return (atom if power == 1 else None), sign, expr.terms.get((), 0)


def _next_solution(pending: list[Condition], domain: NormalizedDomain) -> Solution | None:
    for condition in pending:
        if isinstance(condition, Relation) and condition.operator == "==":
            found = _isolate(condition.expr) or _congruence(condition.expr, domain.box)
            if found is not None:
                return found
    for name, least in domain.box.lower.items():
        if least == domain.box.upper[name] and any(name in c.symbols for c in pending):
            return name, constant(least), None
    return None


def _isolate(expr: Expr) -> Solution | None:
    """`name == value` where a symbol occurs once, with coefficient 1 or -1, and not in the value."""
    for monomial, coefficient in expr.terms.items():
        if abs(coefficient) != 1 or len(monomial) != 1 or monomial[0][1] != 1:
            continue
        atom = monomial[0][0]
        if not isinstance(atom, Symbol):
            continue
        value = Expr({m: -c * coefficient for m, c in expr.terms.items() if m != monomial})
        if atom.name not in value.symbols:
            return atom.name, value, None
    return None


def _congruence(expr: Expr, box: Box) -> Solution | None:
    """`n % c == r` as `n == c*q + r` with q a symbol of its own."""
    atom, sign, offset = _signed_atom(expr)
    if not isinstance(atom, Mod):
        return None
    name, step = atom.numerator.as_symbol, atom.denominator.as_constant
    residue = -offset * sign
    if name is None or step is None or not 0 <= residue < step:
        return None
    quotient = f"{name}/{step}"
    while quotient in box.lower:
        quotient += "'"
    return name, step * symbol(quotient) + residue, (quotient, *box.quotients(name, step, residue))


def _substitute(
    domain: NormalizedDomain,
    pending: list[Condition],
    name: str,
    value: Expr,
    fresh: tuple[str, int, int] | None,
) -> list[Condition]:
    box = domain.box
    if fresh is not None:
        quotient, box.lower[quotient], box.upper[quotient] = fresh
        domain.empty = domain.empty or fresh[1] > fresh[2]
    lower, upper = box.lower.pop(name), box.upper.pop(name)
    least, greatest = interval(value, box)
    domain.solved = {n: e.substitute({name: value}) for n, e in domain.solved.items()}
    domain.solved[name] = value
    rest = [c for p in pending for c in p.substitute({name: value}).conjuncts]
    if least < lower:
        rest.append(ge(value, lower))
    if greatest > upper:
        rest.append(le(value, upper))
    return rest
