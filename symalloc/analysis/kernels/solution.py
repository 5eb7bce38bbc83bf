"""The counters of the loops around an access, told by the elements that it is at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import gcd

from symalloc.analysis.kernels.index_bounds import Extremes, divided, extremes, factor_of, is_below
from symalloc.program.ir import KernelAccess
from symalloc.size.choice import Choice, first_choice, is_nonnegative
from symalloc.size.condition import Condition, Relation, conjunction, disjunction, eq, ge, le, lt
from symalloc.size.expr import ZERO, Atom, Expr, FloorDiv, Mod, constant, floordiv, from_atom, mod, symbol

_MOST_STEPS = 32
"""Equations that are solved for one access."""
_MOST_CASES = 32
"""Passes of loops, and ways to choose, that are looked at one by one."""


class Solution:
    """Loop counters as expressions over what is known, as far as `equations` tell.

    The left side of each is over the counters.  Symbols of `scalars` may be negative.
    """

    def __init__(
        self,
        access: KernelAccess,
        equations: Iterable[tuple[Expr, Expr]],
        scalars: frozenset[str],
        most_cases: int = _MOST_CASES,
    ) -> None:
        self.access, self.scalars, self.most_cases = access, scalars, most_cases
        self.passes = {loop.symbol: loop.passes for loop in access.loops}
        self.solved: dict[str, Expr] = {}
        self.conditions: list[Condition] = []
        self.given = tuple(equations)
        self.equations = list(self.given)

    def unsolved(self, told: Expr | Condition) -> list[str]:
        return [name for name in self.passes if name in told.symbols and name not in self.solved]

    def solve(self) -> None:
        for _ in range(_MOST_STEPS):
            number = next((n for n, equation in enumerate(self.equations) if self.step(*equation)), None)
            if number is not None:
                del self.equations[number]
            elif not self.paired() and not self.in_steps():
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
        numbers = [factor.as_constant or 0 for factor in factors.values()]
        step = gcd(*numbers) if all(numbers) else 1
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

    def in_steps(self) -> bool:
        """Solve a remainder by a constant: its counter goes in steps; False where there is none."""
        for number, equation in enumerate(self.equations):
            atom, value = self.atom_alone(*equation)
            width = atom.denominator.as_constant or 0 if isinstance(atom, Mod) else 0
            names = self.unsolved(atom.numerator) if isinstance(atom, Mod) and width > 0 else []
            first = atom.numerator - symbol(names[0]) if isinstance(atom, Mod) and len(names) == 1 else None
            if first is None or self.unsolved(first) or not is_nonnegative(first, self.scalars):
                continue
            step = f"{names[0]}'steps"
            self.passes[step] = None
            self.solved[names[0]] = symbol(step) * width + value - first
            self.conditions += (ge(value, 0), lt(value, width))
            del self.equations[number]
            return True
        return False

    # -- two equations -------------------------------------------------------------------------------------

    def paired(self) -> bool:
        """Put a quotient and its remainder together; False where there is no such pair left."""
        alone = [self.atom_alone(*equation) for equation in self.equations]
        for one, (row, quotient) in enumerate(alone):
            for other, (column, remainder) in enumerate(alone):
                if isinstance(row, FloorDiv) and isinstance(column, Mod):
                    whole = _put_together(row, column)
                    if whole is None:
                        continue
                    width = column.denominator
                    self.equations = [e for n, e in enumerate(self.equations) if n not in (one, other)]
                    self.conditions += (ge(remainder, 0), lt(remainder, width))
                    self.equations.append((whole, quotient * width + remainder))
                    return True
        return False

    def atom_alone(self, index: Expr, value: Expr) -> tuple[Atom | None, Expr]:
        """The one quotient or remainder in an equation with unsolved counters, and what it must be."""
        index = index.substitute(self.solved)
        atoms = [
            atom
            for atom in index.atoms
            if isinstance(atom, FloorDiv | Mod) and self.unsolved(from_atom(atom))
        ]
        rest = index - from_atom(atoms[0]) if len(atoms) == 1 else index
        return (None, value) if self.unsolved(rest) or not atoms else (atoms[0], value - rest)

    # -- what is known in the end --------------------------------------------------------------------------

    def held(self) -> tuple[list[Condition], list[Condition], bool]:
        """The conditions at which elements are reached, those at which loops that count no elements are run
        at all, and whether they say all.
        """
        found = self.told()
        if found[2] or not self.access.exact:
            return found
        return self.by_cases() or found

    def by_cases(self) -> tuple[list[Condition], list[Condition], bool] | None:
        """The same in each of several cases; None where that does not say all either."""
        cases, left, told = [*self.cases()], self.most_cases, list[Condition]()
        for access, equations in cases:
            held, runs, exact = Solution(access, equations, self.scalars, left // len(cases)).held()
            if not exact:
                return None
            told.append(conjunction((*held, *runs)))
        return ([disjunction(told)], [], True) if told else None

    def cases(self) -> Iterator[tuple[KernelAccess, list[tuple[Expr, Expr]]]]:
        """The access and its equations in each case of a choice in them, or in each pass of a loop of few."""
        spoken: tuple[Expr | Condition, ...] = (*(index for index, _ in self.given), *self.access.domain)
        choices = (choice for one in spoken if (choice := first_choice(one)) is not None)
        choice = next((one for one in choices if self.unsolved(from_atom(one))), None)
        if choice is not None and len(choice.cases) <= self.most_cases:
            for condition, chosen in choice.cases:
                taken = partial(_chosen, choice, chosen)
                domain = (*(one.rewrite(taken) for one in self.access.domain), *condition.conjuncts)
                equations = [(index.rewrite(taken), right) for index, right in self.given]
                yield replace(self.access, domain=domain), equations
            return
        counts = {name: self.passes[name] for name in self.passes if name not in self.solved}
        fixed = ((last.as_constant or 0, name) for name, last in counts.items() if last is not None)
        last, name = min(((last, name) for last, name in fixed if last > 0), default=(0, ""))
        for number in range(last if last <= self.most_cases else 0):
            value = {name: constant(number)}
            left = (loop for loop in self.access.loops if loop.symbol != name)
            loops = tuple(replace(one, passes=one.passes and one.passes.substitute(value)) for one in left)
            equations = [(index.substitute(value), right) for index, right in self.given]
            yield replace(self.access.substitute(value), loops=loops), equations

    def told(self) -> tuple[list[Condition], list[Condition], bool]:
        """See `held`."""
        self.solve()
        held = list(self.conditions)
        for index, value in self.equations:
            held += self.between(index.substitute(self.solved), value)
        domain = [*self.access.domain, *self.quotients()]
        domain = [condition.substitute(self.solved) for condition in domain]
        bound = [condition for condition in domain if self.unsolved(condition)]
        held += (part for one in domain if one not in bound for part in one.conjuncts)
        where = self.over_loops(ZERO, bound).where
        runs = [condition for condition in where if not self.unsolved(condition)]
        return held, runs, self.access.exact and not self.equations and len(runs) == len(where)

    def quotients(self) -> Iterator[Condition]:
        """The bounds of the numerators of quotients, which say all that their equations say."""
        for equation in list(self.equations):
            atom, value = self.atom_alone(*equation)
            number = atom.denominator.as_constant if isinstance(atom, FloorDiv) else None
            if isinstance(atom, FloorDiv) and number is not None and number > 0:
                self.equations.remove(equation)
                yield le(value * number, atom.numerator)
                yield lt(atom.numerator, value * number + number)

    def over_loops(self, index: Expr, domain: Sequence[Condition]) -> Extremes:
        """The extremes of an expression over the loops whose counters are not solved."""
        names = [name for name in self.passes if name not in self.solved]
        return extremes(index, domain, names, partial(is_nonnegative, signed=self.scalars))

    def between(self, index: Expr, value: Expr) -> Iterator[Condition]:
        """The bounds of an index that is not solved, and the step in which it goes."""
        factors = [factor_of(index, name) for name in self.unsolved(index)]
        rates = [0 if factor is None else factor.as_constant or 0 for factor in factors]
        step = gcd(*rates)
        if step > 1 and 0 not in rates:
            first = index.substitute(dict.fromkeys(self.unsolved(index), ZERO))
            yield eq(mod(value - first, step), 0)
        atom, value = self.atom_alone(index, value)
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
        found = self.over_loops(index, domain)
        if not self.unsolved(found.least):
            yield le(found.least, high)
        if not self.unsolved(found.greatest):
            yield le(low, found.greatest)


def in_rows(access: KernelAccess, scalars: frozenset[str]) -> KernelAccess:
    """The access, in whose indices the quotient and the remainder of `row * width + column` are these.

    Nothing is executed where the width is 0.
    """
    widths: list[Condition] = []

    def change(atom: Atom) -> Expr | None:
        if not isinstance(atom, FloorDiv | Mod):
            return None
        width, parts = atom.denominator, [Expr({m: c}) for m, c in atom.numerator.terms.items()]
        column = sum((part for part in parts if divided(part, width) is None), ZERO)
        row = divided(atom.numerator - column, width)
        last = column - width + 1  # at most 0
        facts = (one.expr for one in access.domain if isinstance(one, Relation) and one.operator == "<=")
        small = not column.terms or any(is_nonnegative(fact - last, scalars) for fact in facts)
        small = small or is_below(column, width, access.domain, scalars)
        if (
            row is None
            or not small
            or not is_nonnegative(column, scalars)
            or not is_nonnegative(width, scalars)
        ):
            return None
        widths.append(ge(width, 1))
        return row if isinstance(atom, FloorDiv) else column

    indices = tuple(index and index.rewrite(change) for index in access.indices)
    part = access.part and (access.part[0].rewrite(change), access.part[1])
    more = (c for c in dict.fromkeys(widths) if c.as_bool is not True and c not in access.domain)
    return replace(access, indices=indices, part=part, domain=(*access.domain, *more)) if widths else access


def _chosen(choice: Choice, chosen: Expr, atom: Atom) -> Expr | None:
    return chosen if atom == choice else None


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
        same = divided(row.numerator - column.numerator, width) is not None  # but for whole rows
        inside = isinstance(outer, Mod) and outer.numerator == column.numerator
        if same or (isinstance(outer, Mod) and inside and divided(outer.denominator, width) is not None):
            return row.numerator
        return None
    inner = column.numerator.as_atom
    if isinstance(inner, FloorDiv) and inner.numerator == row.numerator:
        return column.numerator if row.denominator == inner.denominator * width else None
    return None
