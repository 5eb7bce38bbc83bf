"""Layer `quotients`: `t // d` and `t % d` through a new symbol q with `d*q <= t <= d*q + d - 1`."""

from __future__ import annotations

from collections.abc import Iterable

from symalloc.prover.bounds import Box, interval
from symalloc.size.condition import Condition, ge, le
from symalloc.size.expr import Atom, Division, Expr, FloorDiv, Monomial, floordiv, from_atom, symbol
from symalloc.size.polynomial import degree, divide

Quotient = tuple[Expr, Expr, Expr]  # a symbol, and the numerator and the divisor it is the quotient of


def abstract_quotients(conditions: Iterable[Condition], box: Box) -> tuple[list[Condition], list[Quotient]]:
    """`conditions` without divisions, with facts that define the symbols in their place; and these.

    The box gains those symbols.  Sound for refutation where every divisor is at least 1 at each point in
    question.
    """
    table: dict[str, Quotient] = {}
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
    return [*changed, *facts], list(table.values())


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


def _introduce(atom: Atom, table: dict[str, Quotient], facts: list[Condition], box: Box) -> Expr:
    if not isinstance(atom, FloorDiv):
        return from_atom(atom)
    known = table.get(atom.key)
    if known is not None:
        return known[0]
    name = f"q!{len(box.lower)}"
    above, below = atom.numerator, atom.denominator
    box.lower[name], box.upper[name] = interval(from_atom(atom), box)
    quotient = symbol(name)
    table[atom.key] = (quotient, above, below)
    facts.append(le(below * quotient, above))
    facts.append(le(above, below * quotient + below - 1))
    if below.as_constant is None:
        facts.append(ge(below, 1))
    return quotient
