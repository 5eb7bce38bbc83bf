"""Signs that are seen from the form of a size: never negative, and at least another size.

All is said of points at which the expressions have a value, where no divisor is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from symalloc.size.choice import Max, Min, Select
from symalloc.size.expr import Atom, Expr, FloorDiv, Mod, Monomial, Symbol


class Signs:
    """Tells what is never negative, symbol by symbol as `nonnegative` says; remembers atoms."""

    __slots__ = ("_atoms", "_nonnegative")

    def __init__(self, nonnegative: Callable[[str], bool]) -> None:
        self._nonnegative = nonnegative
        self._atoms: dict[Atom, bool] = {}

    def expr(self, expr: Expr) -> bool:
        """Return whether every term of `expr` is seen to be >= 0; False says nothing."""
        return all(c > 0 and self.monomial(m) for m, c in expr.terms.items())

    def monomial(self, monomial: Monomial) -> bool:
        """Return whether a product of atoms is seen to be >= 0; False says nothing."""
        for atom, power in monomial:  # noqa: SIM110 - a generator takes as long as what it looks at
            if power % 2 and not self._atom(atom):
                return False
        return True

    def _atom(self, atom: Atom) -> bool:
        found = self._atoms.get(atom)
        if found is None:
            found = self._atoms[atom] = self._seen(atom)
        return found

    def _seen(self, atom: Atom) -> bool:
        match atom:
            case Symbol(name=name):
                return self._nonnegative(name)
            case FloorDiv(numerator=above, denominator=below):
                return self.expr(above) and self.expr(below)
            case Mod(denominator=below):
                return self.expr(below)
            case Max(operands=operands):
                return any(map(self.expr, operands)) or any(-operand in operands for operand in operands)
            case Min(operands=operands):
                return all(map(self.expr, operands))
            case Select(then=then, otherwise=otherwise):
                return self.expr(then) and self.expr(otherwise)
        return False


def is_nonnegative(expr: Expr, signed: Collection[str] = ()) -> bool:
    """Return whether `expr` is seen to be >= 0, where every symbol is but those that are `signed`."""
    return Signs(lambda name: name not in signed).expr(expr)


def undominated(sizes: Iterable[Expr], signed: Collection[str] = ()) -> tuple[Expr, ...]:
    """Those of `sizes` that no other is seen to reach, of some that reach each other the first.

    Symbols are taken as >= 0, but for those that are `signed`.
    """
    return reaching(dict.fromkeys(sizes), lambda size, other: is_nonnegative(size - other, signed))


def reaching(sizes: Iterable[Expr], reaches: Callable[[Expr, Expr], bool]) -> tuple[Expr, ...]:
    """Those of `sizes` that no other `reaches`, of some that reach each other the first."""
    kept: list[Expr] = []
    for size in sizes:
        if not any(reaches(other, size) for other in kept):
            kept = [*(other for other in kept if not reaches(size, other)), size]
    return tuple(kept)


def grows(expr: Expr) -> bool:
    """Return whether `expr` is seen to be never less where a symbol is more, all of them >= 0."""
    return all(
        count > 0 and all(_grows(atom) for atom, _ in monomial) for monomial, count in expr.terms.items()
    )


def _grows(atom: Atom) -> bool:
    match atom:
        case Symbol():
            return True
        case FloorDiv(numerator=above, denominator=below):
            return (below.as_constant or 0) > 0 and grows(above)
        case Max(operands=operands) | Min(operands=operands):
            return all(map(grows, operands))
    return False
