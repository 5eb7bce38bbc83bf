"""One constraint over one domain, and the order in which the layers are asked about it.

The points that show where a constraint holds and fails are a small joint grid, and a few far away.

Refutation shows without a solver that no integer point of a box satisfies some conditions.  They are split
into cases (alternatives, choices) until only relations remain; quotients become symbols, the equalities are
substituted, and what is left is refuted by bounds, by arithmetic, or as a sum of products.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import gcd
from typing import TypeVar

from symalloc.prover.domain import Box, Budget, Meter, Proof, Verdict, decide, interval
from symalloc.prover.normalize import NormalizedDomain, absorb, periods, put
from symalloc.prover.smtlib import Solver
from symalloc.size.choice import fails, first_choice, holds
from symalloc.size.condition import Condition, Or, Relation, conjunction, eq, ge, le, relation
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
    mod,
    symbol,
)

MAX_COLUMNS = 90
MAX_DEGREE = 6
FARTHEST = 2**62  # an upper bound that only says that a symbol fits int64


Row = dict[int, int]
Key = TypeVar("Key")


def contradiction(conditions: Iterable[Condition], box: Box, meter: Meter) -> bool:
    """True if the polynomial relations among `conditions` are shown to contradict each other in `box`."""
    facts = _facts(conditions, box)
    limits = _limits(facts, box)
    if _refuted([*facts, *limits], meter):
        return True
    if all(degree(m) <= 1 for f in facts for m in f.terms):
        return False
    near = [limit for limit in limits if limit.terms.get((), 0) < FARTHEST]
    return _refuted(_products(facts, near), meter)


def _refuted(facts: Sequence[Expr], meter: Meter) -> bool:
    columns = [{m: c for m, c in f.terms.items() if m} for f in facts]
    costs = [f.terms.get((), 0) for f in facts]
    return negative_combination(columns, costs, meter) is True


def _facts(conditions: Iterable[Condition], box: Box) -> list[Expr]:
    """Expressions that are at least zero, over symbols that start at zero."""
    found: list[Expr] = []
    shifted = {name: symbol(name) + low for name, low in box.lower.items() if low}
    for condition in conditions:
        if (
            not isinstance(condition, Relation)
            or condition.operator == "!="
            or not condition.expr.is_polynomial
        ):
            continue
        expr = condition.expr.substitute(shifted)
        found.append(-expr)
        if condition.operator == "==":
            found.append(expr)
    return found


def _limits(facts: Iterable[Expr], box: Box) -> list[Expr]:
    names = sorted(frozenset().union(*(f.symbols for f in facts)))
    return [box.upper[n] - box.lower[n] - symbol(n) for n in names]


def _products(facts: list[Expr], limits: list[Expr]) -> list[Expr]:
    """The facts and limits, and multiples of them that may cancel each other's monomials."""
    columns = dict.fromkeys((*facts, *limits))
    found = (m for f in columns for m, c in f.terms.items() if c > 0 and degree(m) > 1)
    for monomial in sorted(dict.fromkeys(found), key=degree):
        for fact in (*facts, *limits):
            for multiplier in _multipliers(monomial, fact):
                columns.setdefault(multiplier * fact)
                if len(columns) >= MAX_COLUMNS:
                    return list(columns)
    return list(columns)


def _multipliers(wanted: Monomial, fact: Expr) -> Iterable[Expr]:
    """Monomials m such that `m * fact` has `wanted` with a negative coefficient."""
    for monomial, coefficient in fact.terms.items():
        rest = divide(wanted, monomial) if coefficient < 0 and monomial else None
        if rest and degree(rest) + max(map(degree, fact.terms), default=0) <= MAX_DEGREE:
            yield Expr({rest: 1})


def negative_combination(
    columns: Sequence[Mapping[Key, int]], costs: Sequence[int], meter: Meter
) -> bool | None:
    """True if weights w >= 0 exist with `sum(w * column) <= 0` in each row and `sum(w * cost) < 0`.

    None where `meter` runs out first.  All right-hand sides are zero, so the origin is a vertex and the
    simplex method starts there; Bland's rule ends cycling.  Integers throughout: a row is scaled by the pivot
    and divided by the common divisor of its entries.
    """
    rows: defaultdict[Key, Row] = defaultdict(dict)
    for index, column in enumerate(columns):
        for key, value in column.items():
            rows[key][index] = value
    basis = list(range(len(columns), len(columns) + len(rows)))
    table = [{**row, slack: 1} for slack, row in zip(basis, rows.values(), strict=True)]
    objective: Row = {i: cost for i, cost in enumerate(costs) if cost}
    while falling := [column for column, cost in objective.items() if cost < 0]:
        entering = min(falling)  # by Bland's rule
        bounded = (i for i, row in enumerate(table) if row.get(entering, 0) > 0)
        leaving = min(bounded, key=basis.__getitem__, default=None)
        if leaving is None:
            return True
        pivot = table[leaving]
        words = 1 + pivot[entering].bit_length() // 64
        if not meter.spend(words * sum(len(row) for row in table if entering in row)):
            return None
        for index, row in enumerate(table):
            if index != leaving and entering in row:
                table[index] = _eliminate(row, pivot, entering)
        objective = _eliminate(objective, pivot, entering)
        basis[leaving] = entering
    return False


def _eliminate(row: Row, pivot: Row, column: int) -> Row:
    """A positive multiple of `row` plus a multiple of `pivot`, without `column`."""
    factor, scale = row[column], pivot[column]
    result = {i: value * scale for i, value in row.items()}
    for i, value in pivot.items():
        changed = result.get(i, 0) - value * factor
        if changed:
            result[i] = changed
        else:
            result.pop(i, None)
    divisor = gcd(*result.values())
    return {i: value // divisor for i, value in result.items()} if divisor > 1 else result


LAYERS = ("bounds", "equalities", "products", "cases")


def refute(conditions: Iterable[Condition], box: Box, budget: Budget) -> str | None:
    """The hardest layer needed to show that no point of `box` satisfies all `conditions`; None where not
    shown.
    """
    attempt = _Refutation(budget)
    return LAYERS[attempt.rank] if attempt.closed(tuple(conditions), box) else None


class _Refutation:
    """One attempt: counts its cases and remembers the hardest layer used."""

    def __init__(self, budget: Budget) -> None:
        self.cases = budget.cases
        self.meter = Meter(budget.work)
        self.rank = 0

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
                [(test, *(put(c, atom, value) for c in literals)) for test, value in atom.cases], box
            )
        relations = [c for c in literals if isinstance(c, Relation)]
        return self.leaf(relations, box) or self.residues(relations, box)

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

    def residues(self, literals: Sequence[Relation], box: Box) -> bool:
        """Refute relations for each remainder of a symbol by itself: quotients by constants fold there."""
        steps = periods(literals)
        name = min(steps, key=lambda n: (steps[n], n), default="")
        if not name or steps[name] > self.cases:
            return False
        self.cases -= steps[name]
        cases = (eq(mod(symbol(name), steps[name]), residue) for residue in range(steps[name]))
        return all(self.residue(literals, box, case) for case in cases) and self.used("cases")

    def residue(self, literals: Sequence[Relation], box: Box, case: Condition) -> bool:
        domain = NormalizedDomain(names=tuple(box.lower), box=box.copy())
        absorb(domain, (case, *literals))
        return domain.empty or self.closed(domain.facts, domain.box)


def _open_literals(conditions: Iterable[Condition], box: Box) -> list[Condition] | None:
    """The conjuncts that bounds leave open, alternatives pruned; None where `box` makes one false."""
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
    """`(whole, rest)` with `above == whole * below + rest`: division of polynomials as far as it goes."""
    whole = Expr({})
    if below.as_constant is not None or not below.terms:
        return whole, above
    order = {monomial: (degree(monomial), [atom.key for atom, _ in monomial]) for monomial in below.terms}
    lead = max(order, key=order.__getitem__)
    by = below.terms[lead]
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


WIDTHS = {1: 9, 2: 4, 3: 3, 4: 2}
Point = Mapping[str, int]
Ask = Callable[[Sequence[Condition], Box], str | Point | None]
"""Looks for a point of a box that satisfies all conditions, or a proof, by the layer it names, of none."""


class Query:
    """A question: does `constraint` hold over `domain`?

    `holds` and `fails` say in the domain's terms where it does and where it does not; both are defined at
    every point of the domain.  What the layers come across on their way to a verdict stays here: `failing`,
    points where the constraint fails, and `witness`, a point where it holds.
    """

    __slots__ = ("_fails", "constraint", "domain", "failing", "holds", "witness")

    def __init__(self, constraint: Condition, domain: NormalizedDomain) -> None:
        self.constraint, self.domain = constraint, domain
        # obligations first: a substitution may fold the relation that they belong to
        self.holds = domain.reduce(holds(constraint, domain.positive))
        self.failing: Sequence[Point] = ()
        self.witness: Point | None = None
        self._fails: Condition | None = None

    @property
    def fails(self) -> Condition:
        """The condition that the constraint does not hold, or is not defined."""
        if self._fails is None:
            self._fails = self.domain.reduce(fails(self.constraint, self.domain.positive))
        return self._fails

    def classify(self, points: Iterable[Point]) -> None:
        """Set `witness` and `failing` from `points`, which are looked at until both sides were seen."""
        failing: list[Point] = []
        self.failing, self.witness = failing, None
        for point in points:
            if not self.holds.evaluate(point):
                failing.append(point)
            elif self.witness is None:
                self.witness = point
            if failing and self.witness is not None:
                break

    def proof(self, verdict: Verdict, layer: str) -> Proof:
        """The proof of `verdict` by `layer`, with the points found so far."""
        counterexample = self.failing[0] if self.failing and verdict is Verdict.RUNTIME_CHECK else None
        return Proof(verdict=verdict, decided_by=layer, counterexample=counterexample, witness=self.witness)


def undecided(proof: Proof, reason: str) -> Proof:
    """`proof` turned into a run-time check for want of a decision."""
    return replace(proof, verdict=Verdict.RUNTIME_CHECK, unknown=True, reason=reason)


def inhabited(domain: NormalizedDomain, solver: Solver) -> bool | None:
    """Tell whether the domain has a point: True with one in `domain.points`, False by proof, None where
    undecided.
    """
    if domain.empty:
        return False
    if not domain.facts or first_points(domain):
        return True
    if not domain.asked:
        domain.asked = True
        if refute(domain.facts, domain.box, solver.budget) is not None:
            domain.empty = True
            return False
        solver.begin()
        answer = solver.ask(domain.facts, domain.box)
        domain.empty = isinstance(answer, str)
        if isinstance(answer, dict):
            domain.points.append(answer)
            return True
    return False if domain.empty else None


def decide_query(query: Query, solver: Solver) -> Proof:
    """The verdict of the first layer that has one; the domain is taken to be inhabited."""
    return (
        _by_bounds(query)
        or _by_asking(query, first_points(query.domain), lambda c, box: refute(c, box, solver.budget))
        or _by_asking(query, query.domain.points, solver.ask, layer="z3")
        or _undecided(query)
    )


def _by_bounds(query: Query) -> Proof | None:
    value = query.holds.as_bool
    layer = "bounds" if value is None else "constant"
    if value is None:
        value = decide(query.holds, query.domain.box)
    if value is None:
        return None
    return query.proof(Verdict.ALWAYS_VALID if value else Verdict.ALWAYS_INVALID, layer)


def _by_asking(query: Query, points: Iterable[Point], ask: Ask, *, layer: str = "sampling") -> Proof | None:
    """The verdict, where `points` and `ask` show or rule out that the constraint holds, and that it fails.

    `ask` is asked about the sides that `points` do not show; `layer` is the one that its points come from.
    """
    facts, box = query.domain.facts, query.domain.box
    query.classify(points)
    if query.failing and query.witness is not None:
        return query.proof(Verdict.RUNTIME_CHECK, "sampling")
    if not query.failing:
        answer = ask((*facts, query.fails), box)
        if isinstance(answer, str):
            return query.proof(Verdict.ALWAYS_VALID, answer)
        query.failing = () if answer is None else (answer,)
    if query.witness is None:
        answer = ask((*facts, query.holds), box)
        if isinstance(answer, str):
            return query.proof(Verdict.ALWAYS_INVALID, answer)
        query.witness = answer
    if query.failing and query.witness is not None:
        return query.proof(Verdict.RUNTIME_CHECK, layer)
    return None


def _undecided(query: Query) -> Proof:
    missing = "holds" if query.failing else "fails" if query.witness is not None else "holds or fails"
    reason = f"not decided within the budget: no point where it {missing} was found or ruled out"
    return undecided(query.proof(Verdict.RUNTIME_CHECK, "none"), reason)


def satisfies(point: Mapping[str, int], conditions: Iterable[Condition]) -> bool:
    """True if every condition holds at `point`; one with a divisor of zero does not."""
    try:
        for condition in conditions:  # a loop: a generator costs a third more, and this is where sampling is
            if not condition.evaluate(point):
                return False
    except ZeroDivisionError:
        return False
    return True


def first_points(domain: NormalizedDomain) -> list[dict[str, int]]:
    """A few points of the domain, most near its lower corner, those first; computed once."""
    if not domain.sampled:
        domain.sampled = True
        _keep(domain, [*_grid(domain.box), dict(domain.box.upper)])
    return domain.points


def _keep(domain: NormalizedDomain, points: Iterable[dict[str, int]]) -> None:
    known = {tuple(p.values()) for p in domain.points}
    for point in points:
        values = tuple(point.values())
        if values not in known and (not domain.facts or satisfies(point, domain.facts)):
            known.add(values)
            domain.points.append(point)


def _grid(box: Box) -> Iterator[dict[str, int]]:
    base = box.origin()
    names, corner, upper = list(base), tuple(base.values()), tuple(box.upper[n] for n in base)
    for steps in _steps(len(names), WIDTHS.get(len(names), 1)):
        values = tuple(map(operator.add, corner, steps))
        if all(map(operator.le, values, upper)):
            yield dict(zip(names, values, strict=True))
    if len(names) > 4:
        yield from ({**base, n: base[n] + 1} for n in names if base[n] < box.upper[n])


@lru_cache(maxsize=16)
def _steps(count: int, width: int) -> tuple[tuple[int, ...], ...]:
    """The points of a grid of `width` in `count` dimensions by distance from the origin."""
    return tuple(sorted(product(range(width), repeat=count), key=lambda p: (sum(p), p)))
