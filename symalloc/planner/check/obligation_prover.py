"""Prove the obligations of a plan: syntactically, then by the prover; choices one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from symalloc.planner.check.magnitude import Magnitudes
from symalloc.planner.check.obligations import Obligation, Side
from symalloc.planner.memory_plan import Plan
from symalloc.program.ir import Var
from symalloc.prover.domain import INT64_MAX, Domain
from symalloc.prover.ordering import SyntacticOrder, alternatives, candidates
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Proof, Verdict
from symalloc.size.choice import Max, Select
from symalloc.size.condition import Condition, Relation, disjunction, le, negate
from symalloc.size.expr import Atom, Expr

MOST_CHOICES = 5  # nested choices that are taken apart here; what is left goes to the prover whole
EXTENTS = (1, 6, 64, 200, 5000)  # at which a question is tried before it is asked

Point = Mapping[str, int]

_SEEN = Proof(verdict=Verdict.ALWAYS_VALID, decided_by="validator")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObligationProver:
    """Judges `plan` over `domain`, values past 64 bits under the guards that stand before them."""

    plan: Plan
    domain: Domain
    prover: Prover
    order: SyntacticOrder
    magnitudes: Magnitudes
    assumed: dict[tuple[int, str], tuple[Domain, Domain]] = field(default_factory=dict)
    guarded: dict[Var | None, Domain] = field(default_factory=dict)
    points: dict[int, list[Point]] = field(default_factory=dict)
    limits: dict[int, list[Expr]] = field(default_factory=dict)
    bounded: dict[tuple[int, Expr], bool] = field(default_factory=dict)
    seen: dict[Side, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, domain: Domain, prover: Prover) -> ObligationProver:
        """The judge of `plan` over `domain`, where the declared bounds hold that are checked at entry."""
        domain = domain.assuming(g.condition for g in plan.guards if g.declared)
        order = SyntacticOrder(domain)
        return cls(plan=plan, domain=domain, prover=prover, order=order, magnitudes=Magnitudes(order))

    def proof(self, obligation: Obligation) -> Proof:
        """The proof of `obligation`; with a counterexample where it does not hold."""
        domain = self.domain_of(obligation)
        bounded = obligation.guarded and self._bounded(obligation, domain)
        if bounded or self._settled(obligation.sides, domain, MOST_CHOICES):
            return _SEEN
        proof = self.prover.prove(obligation.claim, domain)
        return replace(proof, verdict=Verdict.ALWAYS_VALID) if proof.verdict is Verdict.VACUOUS else proof

    def sees(self, obligation: Obligation) -> bool:
        """Return whether `obligation` is proved at little cost; where it is not, nothing is known."""
        return self._settled(obligation.sides, self.domain_of(obligation), MOST_CHOICES)

    def fits(self, value: Expr, defined_by: Var | None) -> bool:
        """Return whether it is proved that `value` and all sums of its terms fit in 64 bits, where the guards
        hold that stand before what is `defined_by`.
        """
        return self._fits(value, self._guarded(defined_by))

    def within(self, arena: Expr, offsets: Iterable[Expr], defined_by: Var | None) -> frozenset[Expr]:
        """Return values that fit, with all sums of their terms, as `arena` does, which they never exceed:
        offsets in it, and what a maximum in one of them, or in it, is of.

        None of their terms is ever negative.  That the offsets lie in the arena is not asked here.
        """
        if not self.fits(arena, defined_by):
            return frozenset()
        pending = [value for value in dict.fromkeys((arena, *offsets)) if self.order.adds_up(value)]
        found = set(pending)
        for value in pending:  # which grows as it is walked
            for operand in _in_maxima(value):
                if operand not in found and self.order.adds_up(operand):
                    found.add(operand)
                    pending.append(operand)
        return frozenset(found)

    def domain_of(self, obligation: Obligation) -> Domain:
        """Return the domain over which `obligation` must hold."""
        return self._guarded(obligation.defined_by) if obligation.guarded else self.domain

    def _guarded(self, defined_by: Var | None) -> Domain:
        found = self.guarded.get(defined_by)
        if found is None:
            guards = (
                g.condition for g in self.plan.guards if g.defined_by in (None, defined_by) and not g.declared
            )
            found = self.guarded[defined_by] = self.domain.assuming(guards)
        return found

    def _bounded(self, obligation: Obligation, domain: Domain) -> bool:
        """Return whether the magnitude of the value that `obligation` limits is proved to fit in 64 bits."""
        ((low, high),) = obligation.sides
        return self._fits(high if low.as_constant is not None else low, domain)

    def _fits(self, value: Expr, domain: Domain) -> bool:
        key = (id(domain), value)
        found = self.bounded.get(key)
        if found is None:
            bound, scale = self.magnitudes.scaled(value)
            excess = bound - scale * INT64_MAX
            known = any(_follows(excess, limit) for limit in self._limits(domain))
            found = self.bounded[key] = known or self._proved(le(excess, 0), domain)
        return found

    def _limits(self, domain: Domain) -> list[Expr]:
        """The assumptions `expr <= 0` of whose terms only the constant one is ever negative."""
        found = self.limits.get(id(domain))
        if found is None:
            relations = (a for a in domain.assumptions if isinstance(a, Relation) and a.operator == "<=")
            found = self.limits[id(domain)] = [
                a.expr
                for a in relations
                if all(c > 0 and self.order.never_negative(m) for m, c in a.expr.terms.items() if m)
            ]
        return found

    def _settled(self, sides: tuple[Side, ...], domain: Domain, splits: int) -> bool:
        """Return whether one of `sides` is proved to hold throughout, or in each case of a choice."""
        for low, high in sides:
            if self._seen(low, high):
                return True
        choice = next((c for side in sides for expr in side if (c := _choice(expr)) is not None), None)
        if choice is not None:
            return splits > 0 and all(
                self._settled(_chosen(sides, choice.condition, value), case, splits - 1)
                for value, case in zip((True, False), self._cases(choice.condition, domain), strict=True)
            )
        likely = [side for side in sides if self._likely(*side, domain)]
        if any(self._at_most(low, high, domain) for low, high in likely):
            return True
        return len(sides) > 1 and self._proved(disjunction(le(low, high) for low, high in sides), domain)

    def _seen(self, low: Expr, high: Expr) -> bool:
        found = self.seen.get((low, high))
        if found is None:
            found = self.seen[low, high] = self.order.at_most(low, high)
        return found

    def _cases(self, condition: Condition, domain: Domain) -> tuple[Domain, Domain]:
        """`domain` where `condition` holds, and where it does not."""
        key = (id(domain), condition.key)
        found = self.assumed.get(key)
        if found is None:
            found = domain.assuming((condition,)), domain.assuming((negate(condition),))
            self.assumed[key] = found
        return found

    def _at_most(self, low: Expr, high: Expr, domain: Domain) -> bool:
        """Return whether `low <= high` is proved; maxima are taken apart, so that most questions are about
        polynomials.
        """
        highs = alternatives(high)
        return all(
            any(self._likely(a, b, domain) and self._proved(le(a, b), domain) for b in highs)
            for a in candidates(low)
        )

    def _likely(self, low: Expr, high: Expr, domain: Domain) -> bool:
        """Return whether `low <= high` at a few points of `domain`: what fails there need not be asked."""
        return not any(_exceeds(low, high, point) for point in self._points(domain))

    def _points(self, domain: Domain) -> list[Point]:
        found = self.points.get(id(domain))
        if found is None:
            names = _symbols(self.plan).union(*(a.symbols for a in domain.assumptions))
            tried = [{**dict.fromkeys(names, 1), **self.plan.representative}]
            tried += [dict.fromkeys(names, extent) for extent in EXTENTS]
            found = self.points[id(domain)] = [point for point in tried if _inside(domain, point)]
        return found

    def _proved(self, condition: Condition, domain: Domain) -> bool:
        return self.prover.prove(condition, domain, explain=False).holds


def _in_maxima(value: Expr) -> Iterator[Expr]:
    """The operands of each maximum that is a factor of its own of a term."""
    for monomial in value.terms:
        if len(monomial) == 1 and monomial[0][1] == 1 and isinstance(monomial[0][0], Max):
            yield from monomial[0][0].operands


def _chosen(sides: tuple[Side, ...], condition: Condition, value: bool) -> tuple[Side, ...]:
    """`sides` where `condition` is known to be `value`: every choice by it is replaced by what it chooses."""

    def change(atom: Atom) -> Expr | None:
        if not isinstance(atom, Select) or atom.condition != condition:
            return None
        return atom.then if value else atom.otherwise

    return tuple((low.rewrite(change), high.rewrite(change)) for low, high in sides)


def _choice(expr: Expr) -> Select | None:
    """An outermost choice in `expr` whose condition is defined at every point."""
    if expr.is_polynomial:
        return None
    for atom in sorted(expr.atoms):
        if isinstance(atom, Select) and not atom.condition.divisors:
            return atom
        found = next((c for e in atom.operands if (c := _choice(e)) is not None), None)
        if found is not None:
            return found
    return None


def _follows(low: Expr, known: Expr) -> bool:
    """Return whether `low <= 0` follows from `known <= 0`, a multiple of which exceeds it term by term.

    Both are polynomials over what is >= 0, with no negative term but the constant ones.
    """
    times, over = 0, 1  # the factor of `known`
    for monomial, coefficient in low.terms.items():
        if monomial:
            have = known.terms.get(monomial, 0)
            if not have:
                return False
            if coefficient * over > times * have:
                times, over = coefficient, have
    return low.terms.get((), 0) * over <= times * known.terms.get((), 0)


def _symbols(plan: Plan) -> frozenset[str]:
    """The symbols that the places of `plan` depend on."""
    placed = [p for arena in plan.arenas for p in arena.placements]
    exprs = {e for p in placed for e in (p.offset, p.buffer.size, p.buffer.nbytes)}
    exprs |= {arena.size for arena in plan.arenas}
    return frozenset().union(*(e.symbols for e in exprs))


def _exceeds(low: Expr, high: Expr, point: Point) -> bool:
    """Return whether `low > high` at `point`; False where a divisor is zero there."""
    try:
        return low.evaluate(point) > high.evaluate(point)
    except ZeroDivisionError:
        return False


def _inside(domain: Domain, point: Point) -> bool:
    try:
        return domain.contains(point)
    except ZeroDivisionError:
        return False
