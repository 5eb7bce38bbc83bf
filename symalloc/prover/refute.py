"""Showing that no integer point of a box satisfies some conditions, without a solver.

The conditions are split into cases (alternatives, choices) until only relations remain; quotients become
symbols, the equalities are substituted, and what is left is refuted by bounds, by arithmetic, or as a sum
of products.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from symalloc.prover.bounds import Box, decide, interval
from symalloc.prover.budget import Budget, Meter
from symalloc.prover.cases import first_choice, replace
from symalloc.prover.normalize import NormalizedDomain, absorb
from symalloc.prover.products import contradiction
from symalloc.size.condition import Condition, Or, Relation, conjunction, ge, le, relation
from symalloc.size.expr import (
    Atom,
    Division,
    Expr,
    FloorDiv,
    Monomial,
    degree,
    divide,
    floordiv,
    from_atom,
    symbol,
)

LAYERS = ("bounds", "equalities", "products", "cases")


def refute(conditions: Iterable[Condition], box: Box, budget: Budget) -> str | None:
    """The hardest layer needed to show that no point of `box` satisfies all `conditions`; None where not
    shown.
    """
    attempt = _Refutation(budget)
    return attempt.layer if attempt.closed(tuple(conditions), box) else None


class _Refutation:
    """One attempt: counts its cases and remembers the hardest layer used."""

    def __init__(self, budget: Budget) -> None:
        self.cases = budget.cases
        self.meter = Meter(budget.work)
        self.rank = 0

    @property
    def layer(self) -> str:
        return LAYERS[self.rank]

    def used(self, layer: str) -> bool:
        self.rank = max(self.rank, LAYERS.index(layer))
        return True

    def closed(self, conditions: Sequence[Condition], box: Box) -> bool:
        """True if the conjunction is refuted."""
        literals = _open_literals(conditions, box)
        if literals is None:
            return self.used("bounds")
        # alternatives first: the case of a choice may divide by what one alternative alone makes positive
        alternative = min(
            (c for c in literals if isinstance(c, Or)), key=lambda c: len(c.operands), default=None
        )
        if alternative is not None:
            rest = [c for c in literals if c is not alternative]
            return self.each([(operand, *rest) for operand in alternative.operands], box)
        found = (first_choice(c) for c in literals)
        atom = next((a for a in found if a is not None), None)
        if atom is not None:
            return self.each(
                [(test, *(replace(c, atom, value) for c in literals)) for test, value in atom.cases], box
            )
        return self.leaf([c for c in literals if isinstance(c, Relation)], box)

    def each(self, parts: Sequence[Sequence[Condition]], box: Box) -> bool:
        self.cases -= len(parts)
        if self.cases < 0:
            return False
        return all(self.closed(part, box) for part in parts) and (len(parts) < 2 or self.used("cases"))

    def leaf(self, literals: Sequence[Relation], box: Box) -> bool:
        """Refute relations without alternatives or choices."""
        box = box.copy()
        domain = NormalizedDomain(names=tuple(box.lower), box=box)
        absorb(domain, abstract_quotients(literals, box))
        if domain.empty:
            return self.used("equalities")
        facts = [f for f in domain.facts if isinstance(f, Relation)]
        if contradiction(facts, box, self.meter):
            return self.used("products")
        unequal = next((f for f in facts if f.operator == "!="), None)
        if unequal is None:
            return False
        rest = [f for f in facts if f is not unequal]
        sides = (relation("<=", unequal.expr + 1), relation("<=", 1 - unequal.expr))
        return self.each([(side, *rest) for side in sides], box)


def _open_literals(conditions: Iterable[Condition], box: Box) -> list[Condition] | None:
    """The conjuncts that bounds leave open, alternatives pruned; None where one is false everywhere in
    `box`.
    """
    literals: list[Condition] = []
    for part in conjunction(conditions).conjuncts:
        value = decide(part, box)
        if value is False:
            return None
        if value is True:
            continue
        if isinstance(part, Or):
            kept = [c for c in part.operands if decide(c, box) is not False]
            if len(kept) == 1:
                literals += kept[0].conjuncts
                continue
            part = Or(tuple(kept)) if len(kept) < len(part.operands) else part
        literals.append(part)
    return literals


def abstract_quotients(conditions: Iterable[Condition], box: Box) -> list[Condition]:
    """`conditions` without divisions, with facts that define the symbols in their place.

    The box gains those symbols.  Sound for refutation where every divisor is at least 1 at each point in
    question.
    """
    table: dict[str, Expr] = {}
    facts: list[Condition] = []

    def change(atom: Atom) -> Expr | None:
        if not isinstance(atom, Division):
            return None
        above, below = atom.numerator, atom.denominator
        whole, rest = long_division(above, below)
        quotient = whole
        if rest.terms:
            quotient = whole + floordiv(rest, below).map_atoms(lambda a: _introduce(a, table, facts, box))
        return quotient if isinstance(atom, FloorDiv) else above - below * quotient

    changed = [c.rewrite(change) for c in conditions]
    return [*changed, *facts]


def long_division(above: Expr, below: Expr) -> tuple[Expr, Expr]:
    """`(whole, rest)` with `above == whole * below + rest`: exact division of polynomials as far as it
    goes.
    """
    whole = Expr({})
    if below.as_constant is not None or not below.terms:
        return whole, above
    lead, by = max(below.terms.items(), key=lambda term: _order(term[0]))
    for _ in range(8):
        ratios = ((divide(m, lead), c // by) for m, c in above.terms.items() if c % by == 0)
        step = next((Expr({m: c}) for m, c in ratios if m is not None), None)
        if step is None:
            break
        rest = above - step * below
        if len(rest.terms) > len(above.terms) and len(below.terms) > 1:
            break
        whole, above = whole + step, rest
    return whole, above


def _order(monomial: Monomial) -> tuple[int, list[str]]:
    return degree(monomial), [atom.key for atom, _ in monomial]


def _introduce(atom: Atom, table: dict[str, Expr], facts: list[Condition], box: Box) -> Expr:
    if not isinstance(atom, FloorDiv):
        return from_atom(atom)
    known = table.get(atom.key)
    if known is not None:
        return known
    name = f"q!{len(box.lower)}"
    above, below = atom.numerator, atom.denominator
    box.lower[name], box.upper[name] = interval(from_atom(atom), box)
    quotient = table[atom.key] = symbol(name)
    facts.append(le(below * quotient, above))
    facts.append(le(above, below * quotient + below - 1))
    if below.as_constant is None:
        facts.append(ge(below, 1))
    return quotient
