"""Showing that no integer point of a box satisfies some conditions, without a solver.

The conditions are split into cases (alternatives, choices) until only relations remain; quotients become
symbols, the equalities are substituted, and what is left is refuted by bounds, by arithmetic, or as a sum
of products.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, permutations

from symalloc.prover.bounds import Box, decide
from symalloc.prover.budget import Budget, Meter
from symalloc.prover.cases import first_choice, replace, residue_classes
from symalloc.prover.equations import impossible
from symalloc.prover.normalize import NormalizedDomain, absorb
from symalloc.prover.products import contradiction
from symalloc.prover.quotients import Quotient, abstract_quotients
from symalloc.size.condition import Condition, Or, Relation, conjunction, ge, le, relation
from symalloc.size.expr import ZERO, Expr, Symbol, symbol
from symalloc.size.polynomial import degree

MAX_PAIRS = 30
LEMMA_WORK = 3_000
LAYERS = ("bounds", "equalities", "products", "equations", "cases", "residues")


def refute(
    conditions: Iterable[Condition], box: Box, budget: Budget, together: Meter | None = None
) -> str | None:
    """The hardest layer needed to show that no point of `box` satisfies all `conditions`; None where not
    shown.

    `together` counts the conditions in the cases of several attempts, which end when it does.
    """
    attempt = _Refutation(budget, together)
    return attempt.layer if attempt.closed(tuple(conditions), box) else None


def refute_by_residues(conditions: Iterable[Condition], box: Box, budget: Budget) -> str | None:
    """The same, residue by residue: dearer, for what `refute` leaves open."""
    conditions = tuple(conditions)
    for classes in residue_classes(conditions, box):
        attempt = _Refutation(budget)
        if all(attempt.closed(part, narrowed) for part, narrowed in classes):
            return "residues"
    return None


class _Refutation:
    """One attempt: counts its cases and remembers the hardest layer used."""

    def __init__(self, budget: Budget, together: Meter | None = None) -> None:
        self.cases, self.together = budget.cases, together
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
        if self.together is not None and not self.together.spend(len(conditions)):
            return False
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
        conditions, quotients = abstract_quotients(literals, box)
        absorb(domain, conditions, euclid=True)
        if domain.empty:
            return self.used("equalities")
        facts = [d for f in domain.facts if isinstance(f, Relation) for d in without_factor(f, box)]
        if contradiction(facts, box, self.meter, multiply=False):
            return self.used("products")
        facts += _ordered_quotients(quotients, facts, domain)
        if contradiction(facts, box, self.meter):
            return self.used("products")
        if any(impossible(f, box) for f in facts):
            return self.used("equations")
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


def without_factor(fact: Relation, box: Box) -> list[Relation]:
    """An equivalent of `fact`: divided by the symbols that every term has and that are at least 1.

    `M*f + c <= 0` with c > 0 gives `f <= -1`, which is all that it says where c is 1; and where M is only
    known to be at least 0, also that it is at least 1.
    """
    offset = fact.expr.terms.get((), 0) if fact.operator == "<=" else 0
    least = 0 if offset > 0 else 1
    divided = fact.expr - offset if offset > 0 else fact.expr
    factors = [a for a in sorted(divided.atoms) if isinstance(a, Symbol) and box.lower[a.name] >= least]
    positive: dict[Symbol, None] = {}
    for atom in factors:
        while (quotient := divided.over(((atom, 1),))) is not None:
            divided, positive[atom] = quotient, None
    changed = relation(fact.operator, divided + 1 if offset > 0 else divided)
    if not positive or not isinstance(changed, Relation):
        return [fact]
    raised = (ge(symbol(a.name), 1) for a in positive if box.lower[a.name] < 1)
    found = [changed, *(r for r in raised if isinstance(r, Relation))]
    return found if offset <= 1 else [*found, fact]


def _ordered_quotients(
    quotients: Sequence[Quotient], facts: Sequence[Relation], domain: NormalizedDomain
) -> list[Relation]:
    """`p <= q` for quotients by the same divisor whose numerators are so ordered by the facts, and `q <= n`
    for quotients `(n + c) // d`.
    """
    found: list[Relation] = []
    for lesser, greater, refuted in _orders(quotients):
        multiply = any(degree(m) > 1 for r in refuted.relations for m in r.expr.terms)
        if contradiction((*facts, domain.reduce(refuted)), domain.box, Meter(LEMMA_WORK), multiply=multiply):
            ordered = domain.reduce(le(lesser, greater))
            found += [ordered] if isinstance(ordered, Relation) else []
    return found


def _orders(quotients: Sequence[Quotient]) -> Iterator[tuple[Expr, Expr, Condition]]:
    """Pairs that may be ordered, with what must be impossible for that."""
    for q, above, below in quotients[:MAX_PAIRS]:
        if below.as_constant is None:
            yield q, ZERO, ge(above, below)
    for (p, above, below), (q, other, divisor) in islice(permutations(quotients, 2), MAX_PAIRS):
        if below == divisor:
            yield p, q, ge(above, other + 1)
    for q, above, below in quotients[:MAX_PAIRS]:
        whole = above - above.terms.get((), 0)
        if below.as_constant is not None and whole.as_symbol is not None:
            yield q, whole, ge(q, whole + 1)
