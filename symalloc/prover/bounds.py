"""Layer `bounds`: interval arithmetic over a box."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from symalloc.size.choice import Choice, Max, Min
from symalloc.size.condition import And, Condition, Or, Relation
from symalloc.size.expr import Atom, Expr, FloorDiv, Mod, Symbol

Interval = tuple[int, int]


class Box:
    """Finite bounds for symbols; what refutation narrows as it goes.  `copy` before changing a shared one."""

    __slots__ = ("lower", "upper")

    def __init__(self, lower: Mapping[str, int], upper: Mapping[str, int]) -> None:
        self.lower = dict(lower)
        self.upper = dict(upper)

    def copy(self) -> Box:
        """An independent box with the same bounds."""
        return Box(self.lower, self.upper)

    def origin(self) -> dict[str, int]:
        """The point nearest to zero."""
        return {n: max(low, min(0, self.upper[n])) for n, low in self.lower.items()}

    def holds(self, point: Mapping[str, int]) -> bool:
        """True if every coordinate of `point` lies within its bounds."""
        return all(self.lower[n] <= v <= self.upper[n] for n, v in point.items())

    def quotients(self, name: str, step: int, residue: int) -> Interval:
        """The least and the greatest q with `step * q + residue` within the bounds of `name`."""
        return -((residue - self.lower[name]) // step), (self.upper[name] - residue) // step

    def narrow(self, name: str, least: int | None, greatest: int | None) -> bool:
        """Raise the lower or reduce the upper bound of `name`; False where nothing is left."""
        if least is not None and least > self.lower[name]:
            self.lower[name] = least
        if greatest is not None and greatest < self.upper[name]:
            self.upper[name] = greatest
        return self.lower[name] <= self.upper[name]


def interval(expr: Expr, box: Box) -> Interval:
    """Bounds of `expr` over `box`, term by term: sound, not always tight."""
    low = high = 0
    lower, upper = box.lower, box.upper
    for monomial, coefficient in expr.terms.items():
        a = b = 1
        for atom, power in monomial:
            if type(atom) is Symbol:
                x, y = lower[atom.name], upper[atom.name]
            else:
                x, y = _INTERVALS.get(type(atom), _hull)(atom, box)
            if power > 1:
                x, y = _power(x, y, power)
            if a >= 0 and x >= 0:
                a, b = a * x, b * y
            else:
                corners = (a * x, a * y, b * x, b * y)
                a, b = min(corners), max(corners)
        if coefficient >= 0:
            low, high = low + coefficient * a, high + coefficient * b
        else:
            low, high = low + coefficient * b, high + coefficient * a
    return low, high


def decide(condition: Condition, box: Box) -> bool | None:
    """The truth of `condition` everywhere in `box`, where intervals settle it."""
    if type(condition) is Relation:
        return _decide_interval(condition.operator, *interval(condition.expr, box))
    assert isinstance(condition, And | Or)
    absorbing = isinstance(condition, Or)
    open_ = False
    for part in condition.operands:
        value = decide(part, box)
        if value is absorbing:
            return absorbing
        open_ = open_ or value is None
    return None if open_ else not absorbing


def _decide_interval(operator: str, low: int, high: int) -> bool | None:
    if operator == "<=":
        return True if high <= 0 else False if low > 0 else None
    value = False if low > 0 or high < 0 else True if low == high == 0 else None
    return value if operator == "==" or value is None else not value


def _quotient(above: Interval, below: Interval) -> Interval:
    if below[0] < 1:
        size = max(abs(above[0]), abs(above[1]))  # |a // b| <= |a| for every b but zero
        return -size, size
    low = above[0] // (below[1] if above[0] >= 0 else below[0])
    return low, above[1] // (below[0] if above[1] >= 0 else below[1])


def _remainder(above: Interval, below: Interval) -> Interval:
    if below[0] < 1:
        return min(below[0] + 1, 0), max(below[1] - 1, 0)
    if above[0] >= 0:
        return above if above[1] < below[0] else (0, min(above[1], below[1] - 1))
    return 0, below[1] - 1


def _power(x: int, y: int, power: int) -> Interval:
    if x >= 0 or power % 2:
        return x**power, y**power
    return (0 if y >= 0 else y**power), max(x**power, y**power)


_INTERVALS: dict[type[Atom], Callable[[Any, Box], Interval]] = {
    FloorDiv: lambda atom, box: _quotient(interval(atom.numerator, box), interval(atom.denominator, box)),
    Mod: lambda atom, box: _remainder(interval(atom.numerator, box), interval(atom.denominator, box)),
    Min: lambda atom, box: _extremum(min, atom.parts, box),
    Max: lambda atom, box: _extremum(max, atom.parts, box),
}


def _extremum(pick: Callable[[Iterable[int]], int], operands: Iterable[Expr], box: Box) -> Interval:
    ranges = [interval(operand, box) for operand in operands]
    return pick(low for low, _ in ranges), pick(high for _, high in ranges)


def _hull(atom: Choice, box: Box) -> Interval:
    """The bounds of all values that a choice may have."""
    ranges = [interval(value, box) for _, value in atom.cases]
    return min(low for low, _ in ranges), max(high for _, high in ranges)
