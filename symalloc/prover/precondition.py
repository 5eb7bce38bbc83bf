"""Preconditions: when a claim holds, readably, and proved equivalent before it is shown.

Rules keep the meaning over the box: a positive factor is divided out, `max(a, b) <= c` becomes two bounds,
and `t // d <= k` a bound on t.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from symalloc.prover.bounds import Box, decide, interval
from symalloc.prover.budget import Budget
from symalloc.prover.normalize import NormalizedDomain
from symalloc.prover.query import Query
from symalloc.prover.refute import refute
from symalloc.prover.univariate import Intervals, SolutionSet, solve_exactly
from symalloc.size.choice import Max, Min
from symalloc.size.condition import (
    And,
    Condition,
    Junction,
    Or,
    Relation,
    conjunction,
    disjunction,
    eq,
    ge,
    le,
    ne,
    relation,
)
from symalloc.size.defined import fails, holds
from symalloc.size.expr import Atom, Expr, FloorDiv, Symbol, mod, symbol

MAX_SPANS = 3
MAX_LENGTH = 120
SMALL = Budget(z3_steps=0, cases=24, work=30_000)


def precondition(query: Query) -> Condition | None:
    """The most readable condition found that is equivalent to the claim over its domain, in the domain's
    symbols.
    """
    for candidate in _candidates(query):
        if _short(candidate) and equivalent(query, candidate):
            return candidate
    return None


def _short(candidate: Condition) -> bool:
    return len(candidate.key) <= MAX_LENGTH or len(str(candidate)) <= MAX_LENGTH


def equivalent(query: Query, candidate: Condition) -> bool:
    """True if `candidate` is proved to hold exactly where the claim does, over the claim's domain."""
    domain = query.domain
    if candidate == query.constraint and query.holds == domain.reduce(candidate):
        return True
    if query.solutions is not None:
        found = solve_exactly(domain.reduce(candidate), domain, query.solutions.step)
        if found is not None and (found.name, found.step) == (query.solutions.name, query.solutions.step):
            return found.inside == query.solutions.inside
    there = domain.reduce(holds(candidate, domain.positive))
    if any(there.evaluate(p) is not query.holds.evaluate(p) for p in domain.points[:40]):
        return False
    elsewhere = domain.reduce(fails(candidate, domain.positive))
    return _never(conjunction((there, query.fails)), domain) and _never(
        conjunction((elsewhere, query.holds)), domain
    )


def _never(condition: Condition, domain: NormalizedDomain) -> bool:
    if condition.as_bool is False or decide(condition, domain.box) is False:
        return True
    exact = solve_exactly(condition, domain)
    if exact is not None:
        return not any(spans for _, spans in exact.inside)
    return refute((*domain.facts, condition), domain.box, SMALL) is not None


def _candidates(query: Query) -> Iterator[Condition]:
    if query.solutions is not None:
        found = _from_solutions(query.solutions, query.domain)
        if found is not None:
            yield found
    domain = query.domain
    guarded = holds(query.constraint, domain.positive)
    simple = _without_the_given(simplify(guarded, domain.bounds()), domain)
    yield simple
    if simple != guarded:
        yield guarded


def _without_the_given(condition: Condition, domain: NormalizedDomain) -> Condition:
    """Drop conjuncts that follow from the domain and the others, and alternatives that never hold."""
    if isinstance(condition, Or):
        return disjunction(
            c for c in condition.operands if not _never(_reduced(c, domain, false=False), domain)
        )
    if not isinstance(condition, And):
        return condition
    kept = list(condition.operands)
    for part in reversed(condition.operands):
        others = [_reduced(c, domain, false=False) for c in kept if c != part]
        if _never(conjunction((*others, _reduced(part, domain, false=True))), domain):
            kept.remove(part)
    return conjunction(kept)


def _reduced(condition: Condition, domain: NormalizedDomain, *, false: bool) -> Condition:
    write = fails if false else holds
    return domain.reduce(write(condition, domain.positive))


def _from_solutions(exact: SolutionSet, domain: NormalizedDomain) -> Condition | None:
    """The solution set as bounds, values or a remainder of the domain's symbol."""
    subject = _subject(exact.name, domain)
    if subject is None:
        return None
    name, scale, offset = subject
    inside = _spans(exact.inside, exact.step)
    outside = _spans(exact.outside, exact.step)
    if scale == 1 and offset == 0 and exact.step > 1:
        remainder = _as_remainder(exact)
        if remainder is not None:
            return remainder
    blocks = _blocks(inside, outside)
    if blocks is None or len(blocks) > MAX_SPANS:
        return None
    value = symbol(name)
    if (
        len(outside) == 1
        and outside[0][0] == outside[0][1]
        and blocks[0][0] is None
        and blocks[-1][1] is None
    ):
        return ne(value, scale * outside[0][0] + offset)
    return disjunction(
        _between(value, None if a is None else scale * a + offset, None if b is None else scale * b + offset)
        for a, b in blocks
    )


def _subject(name: str, domain: NormalizedDomain) -> tuple[str, int, int] | None:
    """The domain's symbol that `name` stands for, as `(symbol, scale, offset)`: symbol == scale*name +
    offset.
    """
    if name in domain.names:
        return name, 1, 0
    for original, value in domain.solved.items():
        terms = {m: c for m, c in value.terms.items() if m}
        if value.symbols == {name} and value.is_polynomial and len(terms) == 1:
            ((monomial, scale),) = terms.items()
            if scale > 0 and monomial[0][1] == 1:
                return original, scale, value.terms.get((), 0)
    return None


def _spans(classes: tuple[tuple[int, Intervals], ...], step: int) -> list[tuple[int, int, int]]:
    """`(first, last, stride)` in terms of the symbol itself."""
    return sorted((step * a + r, step * b + r, step) for r, spans in classes for a, b in spans)


def _blocks(
    inside: list[tuple[int, int, int]], outside: list[tuple[int, int, int]]
) -> list[tuple[int | None, int | None]] | None:
    """Ranges that cover `inside` and no point of `outside`; open ends where nothing lies outside.  None if
    there are many.
    """
    blocks: list[tuple[int, int]] = []
    for first, last, _ in inside:
        if blocks and not _meets(outside, blocks[-1][0], max(last, blocks[-1][1])):
            blocks[-1] = (blocks[-1][0], max(last, blocks[-1][1]))
        else:
            blocks.append((first, last))
    if len(blocks) > MAX_SPANS or any(_meets(outside, a, b) for a, b in blocks):
        return None
    least = min(first for first, _, _ in outside)
    greatest = max(last for _, last, _ in outside)
    return [(None if a < least else a, None if b > greatest else b) for a, b in blocks]


def _meets(spans: list[tuple[int, int, int]], low: int, high: int) -> bool:
    """True if a point of `spans` lies in [low, high]."""
    for first, last, stride in spans:
        start = first + max(0, -((first - low) // stride)) * stride
        if start <= min(last, high):
            return True
    return False


def _between(value: Expr, least: int | None, greatest: int | None) -> Condition:
    if least is not None and least == greatest:
        return eq(value, least)
    parts = [] if least is None else [ge(value, least)]
    if greatest is not None:
        parts.append(le(value, greatest))
    return conjunction(parts)


def _as_remainder(exact: SolutionSet) -> Condition | None:
    """`n % d == r`, `n % d != r` or `n % d <= r` where whole residue classes are in or out."""
    taken = {r for r, spans in exact.inside if spans}
    left = {r for r, spans in exact.outside if spans}
    if taken & left or not taken or not left:
        return None
    value = symbol(exact.name)
    for modulus in (d for d in range(2, exact.step + 1) if exact.step % d == 0):
        yes, no = {r % modulus for r in taken}, {r % modulus for r in left}
        if yes & no:
            continue
        return _describe(mod(value, modulus), modulus, yes, no)
    return None


def _describe(remainder: Expr, modulus: int, yes: set[int], no: set[int]) -> Condition | None:
    if len(yes) == 1:
        return eq(remainder, min(yes))
    if len(no) == 1 and (0 in no or max(no) < modulus - 1):
        return ne(remainder, min(no))
    if max(yes) < min(no):
        return le(remainder, max(yes))
    return ge(remainder, min(yes)) if max(no) < min(yes) else None


MAX_ROUNDS = 6


def simplify(condition: Condition, box: Box) -> Condition:
    """An equivalent of `condition` over `box`, simpler where a rule applies."""
    if isinstance(condition, Relation):
        return _rounds(condition, box, MAX_ROUNDS)
    assert isinstance(condition, Junction)
    return condition.connect(lambda operand: simplify(operand, box))


def _rounds(condition: Relation, box: Box, left: int) -> Condition:
    for rule in _RULES:
        changed = rule(condition, box)
        if changed is None or changed == condition:
            continue
        if isinstance(changed, Relation):
            return _rounds(changed, box, left - 1) if left else changed
        return simplify(changed, box) if left else changed
    return condition


def _divide_factor(subject: Relation, box: Box) -> Condition | None:
    """Divide by a symbol that every term has; one that may be zero is kept as an alternative."""
    for atom in sorted(subject.expr.atoms):
        quotient = subject.expr.over(((atom, 1),))
        if quotient is None or not isinstance(atom, Symbol) or box.lower[atom.name] < 0:
            continue
        divided = relation(subject.operator, quotient)
        if box.lower[atom.name] >= 1:
            return divided
        zero = eq(symbol(atom.name), 0)
        if subject.operator != "!=":
            return disjunction((divided, zero))
        return conjunction((divided, ge(symbol(atom.name), 1)))
    return None


def _open_extremum(subject: Relation, _box: Box) -> Condition | None:
    """`max(a, b) + r <= 0` is `a + r <= 0 and b + r <= 0`; with min, or a negative sign, an alternative."""
    if subject.operator != "<=":
        return None
    found = _linear_atom(subject.expr, Min, Max)
    if found is None:
        return None
    atom, coefficient, rest = found
    assert isinstance(atom, Min | Max)
    parts = [le(coefficient * operand + rest, 0) for operand in atom.operands]
    every = isinstance(atom, Max) is (coefficient > 0)
    return conjunction(parts) if every else disjunction(parts)


def _invert_quotient(subject: Relation, box: Box) -> Condition | None:
    """`t // d <= k` is `t <= d*k + d - 1`, and `t // d >= k` is `t >= d*k`."""
    if subject.operator != "<=":
        return None
    found = _linear_atom(subject.expr, FloorDiv)
    if found is None:
        return None
    atom, coefficient, rest = found
    assert isinstance(atom, FloorDiv)
    below, constant = atom.denominator, rest.as_constant
    if interval(below, box)[0] < 1 or (constant is None and abs(coefficient) != 1):
        return None
    if coefficient > 0:
        bound = -rest if constant is None else Expr({(): -constant // coefficient})
        return le(atom.numerator, below * bound + below - 1)
    bound = rest if constant is None else Expr({(): -(-constant // -coefficient)})
    return ge(atom.numerator, below * bound)


def _linear_atom(expr: Expr, *kinds: type) -> tuple[Atom, int, Expr] | None:
    """`(atom, coefficient, rest)` for the one term that is a number times an atom of `kinds`, none in the
    rest.
    """
    hits = [(m, c) for m, c in expr.terms.items() if any(isinstance(a, kinds) for a, _ in m)]
    if len(hits) != 1:
        return None
    monomial, coefficient = hits[0]
    if len(monomial) != 1 or monomial[0][1] != 1:
        return None
    rest = Expr({m: c for m, c in expr.terms.items() if m != monomial})
    return monomial[0][0], coefficient, rest


_RULES: tuple[Callable[[Relation, Box], Condition | None], ...] = (
    _divide_factor,
    _open_extremum,
    _invert_quotient,
)
