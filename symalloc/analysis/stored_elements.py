"""The elements of a buffer that a store reaches, as a condition over their indices.

A store is executed at the points of its domain, over the counters of the loops around it.  Its indices are
solved for these counters: `b[16*o + i]` with `i < 16` reaches element `e` in the pass `o = e // 16`,
`i = e % 16`, and in no other; `b[t // m, t % m]` reaches `(r, c)` at `t = r*m + c`; `b[2*i]` none of the odd
ones.  What has no such solution is left out of the condition, so that it holds at each element that is
stored, and where nothing was left out at no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import gcd
from typing import NamedTuple

from symalloc.analysis.loop_elimination import extremes, factor_of
from symalloc.analysis.plain_bounds import divided, is_below
from symalloc.program.kernel_access import KernelAccess
from symalloc.size.condition import Condition, Relation, conjunction, eq, ge, le, lt
from symalloc.size.expr import ZERO, Expr, FloorDiv, Mod, floordiv, mod, symbol
from symalloc.size.sign import is_nonnegative

_MOST_STEPS = 32
"""Equations that are solved for one store."""


def element_index(axis: int) -> Expr:
    """Index number `axis` of an element; no symbol of a program has such a name."""
    return symbol(f"i{axis}'")


class StoredElements(NamedTuple):
    """`where` holds at each element of a buffer that is stored; at no others if that is `exact`."""

    where: Condition
    exact: bool


def stored_elements(access: KernelAccess, shape: Sequence[Expr], scalars: frozenset[str]) -> StoredElements:
    """The elements of a buffer of `shape` that `access` stores; the symbols `scalars` may be negative."""
    solution = _Solution(access, scalars)
    for axis, index in enumerate(access.indices):
        if index is not None:
            solution.equations.append((index, element_index(axis)))
    solution.solve()
    held, exact = solution.held()
    inside = [lt(element_index(axis), extent) for axis, extent in enumerate(shape)]
    told = [c for c in dict.fromkeys(held) if not _is_plain(c, inside, scalars)]
    return StoredElements(conjunction(told), exact and None not in access.indices)


def _is_plain(condition: Condition, inside: Sequence[Condition], scalars: frozenset[str]) -> bool:
    """True if a condition plainly holds at each element of the buffer."""
    if condition.as_bool is not None:
        return condition.as_bool
    if condition in inside:
        return True
    if not isinstance(condition, Relation) or condition.operator != "<=":
        return False
    positive = Expr({m: c for m, c in condition.expr.terms.items() if c > 0})
    end = positive - condition.expr + 1  # positive < end
    return is_nonnegative(-condition.expr, scalars) or is_below(positive, end, inside, scalars)


class _Solution:
    """Loop counters as expressions over elements, as far as equations between the two tell them."""

    def __init__(self, access: KernelAccess, scalars: frozenset[str]) -> None:
        self.access, self.scalars = access, scalars
        self.passes = {loop.symbol: loop.passes for loop in access.loops}
        self.solved: dict[str, Expr] = {}
        self.equations: list[tuple[Expr, Expr]] = []
        self.conditions: list[Condition] = []

    def unsolved(self, expr: Expr) -> list[str]:
        return [name for name in self.passes if name in expr.symbols and name not in self.solved]

    def solve(self) -> None:
        for _ in range(_MOST_STEPS):
            number = next((n for n, equation in enumerate(self.equations) if self.step(*equation)), None)
            if number is not None:
                del self.equations[number]
            elif not self.paired():
                return

    # -- one equation --------------------------------------------------------------------------------------

    def step(self, index: Expr, value: Expr) -> bool:
        """Solve an equation for one of its counters; False where that is not plain."""
        index = index.substitute(self.solved)
        names = self.unsolved(index)
        if not names:
            self.conditions.append(eq(index, value))
            return True
        factors = {name: factor_of(index, name) for name in names}
        known = {name: factor for name, factor in factors.items() if factor is not None}
        if len(known) < len(names):
            return False
        rest = index.substitute(dict.fromkeys(names, ZERO))
        if len(names) == 1:
            return self.alone(names[0], known[names[0]], value - rest)
        return self.innermost(known, value - rest)

    def alone(self, name: str, factor: Expr, value: Expr) -> bool:
        """`factor * name == value`."""
        number = factor.as_constant
        if not number:
            return False
        value = value if number > 0 else -value
        if abs(number) > 1:
            self.conditions.append(eq(mod(value, abs(number)), 0))
        self.solved[name] = floordiv(value, abs(number))
        return True

    def innermost(self, factors: dict[str, Expr], value: Expr) -> bool:
        """`sum(factor * name) == value`, where one counter stays below what divides all other factors."""
        step = gcd(*(f.as_constant or 0 for f in factors.values())) if _are_numbers(factors) else 1
        for name, factor in factors.items():
            passes, others = self.passes[name], [f for n, f in factors.items() if n != name]
            if passes is None or factor != step:
                continue
            width = _common(others, step)
            if width is None or not is_below(passes - 1, width, (), self.scalars):
                continue
            if step > 1:
                self.conditions.append(eq(mod(value, step), 0))
            whole = floordiv(value, step)
            self.solved[name] = mod(whole, width)
            left = [(symbol(n), divided(f, width * step)) for n, f in factors.items() if n != name]
            index = sum((counter * rate for counter, rate in left if rate is not None), ZERO)
            self.equations.append((index, floordiv(whole, width)))
            return True
        return False

    # -- two equations -------------------------------------------------------------------------------------

    def paired(self) -> bool:
        """Put a quotient and its remainder together; False where there is no such pair left."""
        for one in self.equations:
            for other in self.equations:
                row, column = one[0].as_atom, other[0].as_atom
                if isinstance(row, FloorDiv) and isinstance(column, Mod):
                    whole = _put_together(row, column)
                    if whole is None:
                        continue
                    self.equations = [e for e in self.equations if e is not one and e is not other]
                    width = column.denominator
                    self.conditions += (ge(other[1], 0), lt(other[1], width))
                    self.equations.append((whole, one[1] * width + other[1]))
                    return True
        return False

    # -- what is known in the end --------------------------------------------------------------------------

    def held(self) -> tuple[list[Condition], bool]:
        """The conditions at which elements are stored, and whether they say all."""
        held, exact = list(self.conditions), not self.equations and self.access.exact
        for index, value in self.equations:
            held += self.between(index.substitute(self.solved), value)
        for condition in self.access.domain:
            known = condition.substitute(self.solved)
            left = self.unsolved(known.expr) if isinstance(known, Relation) else self.left_in(known)
            if not left:
                held += known.conjuncts
            elif len(left) == 1 and condition in _ends(left[0], self.passes[left[0]]):
                held += self.runs(left[0])
            else:
                exact = False
        return held, exact

    def left_in(self, condition: Condition) -> list[str]:
        return [name for name in self.passes if name in condition.symbols and name not in self.solved]

    def runs(self, name: str) -> Iterator[Condition]:
        """That a loop which counts no elements is run at all."""
        passes = self.passes[name]
        if passes is not None and not self.unsolved(passes := passes.substitute(self.solved)):
            yield ge(passes, 1)

    def between(self, index: Expr, value: Expr) -> Iterator[Condition]:
        """The bounds of an index that is not solved, and the step in which it goes."""
        factors = [factor_of(index, name) for name in self.unsolved(index)]
        rates = [0 if factor is None else factor.as_constant or 0 for factor in factors]
        step = gcd(*rates)
        if step > 1 and 0 not in rates:
            first = index.substitute(dict.fromkeys(self.unsolved(index), ZERO))
            yield eq(mod(value - first, step), 0)
        atom = index.as_atom
        if isinstance(atom, FloorDiv):
            low, high = value * atom.denominator, value * atom.denominator + atom.denominator - 1
            yield from self.bounds(atom.numerator, low, high)
        elif isinstance(atom, Mod) and not self.unsolved(atom.denominator):
            yield lt(value, atom.denominator)
        else:
            yield from self.bounds(index, value, value)

    def bounds(self, index: Expr, low: Expr, high: Expr) -> Iterator[Condition]:
        """That the values of `index` over the loops reach into `low` to `high`."""
        domain = [condition.substitute(self.solved) for condition in self.access.domain]
        names = [name for name in self.passes if name not in self.solved]
        found = extremes(index, domain, names, partial(is_nonnegative, signed=self.scalars))
        if not self.unsolved(found.least):
            yield le(found.least, high)
        if not self.unsolved(found.greatest):
            yield le(low, found.greatest)


def _ends(name: str, passes: Expr | None) -> tuple[Condition, ...]:
    count = symbol(name)
    return (ge(count, 0),) if passes is None else (ge(count, 0), lt(count, passes))


def _are_numbers(factors: dict[str, Expr]) -> bool:
    return all(factor.as_constant for factor in factors.values())


def _common(factors: Sequence[Expr], step: int) -> Expr | None:
    """A divisor of all `factors`, in units of `step`."""
    numbers = [factor.as_constant for factor in factors]
    if all(number is not None and number > 0 for number in numbers):
        return ZERO + gcd(*(number // step for number in numbers if number))
    for factor in factors if step == 1 else ():
        if len(factor.terms) == 1 and all(divided(other, factor) is not None for other in factors):
            return factor
    return None


def _put_together(row: FloorDiv, column: Mod) -> Expr | None:
    """The expression of which `row` is the quotient and `column` the remainder, or both of its quotient."""
    width = column.denominator
    if row.denominator == width:
        outer = row.numerator.as_atom
        same = row.numerator == column.numerator
        inside = isinstance(outer, Mod) and outer.numerator == column.numerator
        if same or (isinstance(outer, Mod) and inside and divided(outer.denominator, width) is not None):
            return row.numerator
        return None
    inner = column.numerator.as_atom
    if isinstance(inner, FloorDiv) and inner.numerator == row.numerator:
        return column.numerator if row.denominator == inner.denominator * width else None
    return None
