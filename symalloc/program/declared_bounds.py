"""The bounds of symbols that a function declares, and that nothing checks when it runs."""

from __future__ import annotations

from typing import NamedTuple

from symalloc.program.ir import Function
from symalloc.size.condition import Condition, ge, le
from symalloc.size.expr import symbol


class DeclaredBound(NamedTuple):
    """One side of what a function declares about a symbol."""

    symbol: str
    value: int
    is_upper: bool

    @property
    def condition(self) -> Condition:
        """The bound as a condition."""
        compare = le if self.is_upper else ge
        return compare(symbol(self.symbol), self.value)

    @property
    def text(self) -> str:
        """The bound in words."""
        return f"at {'most' if self.is_upper else 'least'} {self.value}"


def declared_bounds(function: Function) -> tuple[DeclaredBound, ...]:
    """The bounds that a function declares, upper ones first."""
    upper = (DeclaredBound(name, value, True) for name, value in function.declared_upper.items())
    lower = (DeclaredBound(name, value, False) for name, value in function.declared_lower.items())
    return (*upper, *lower)
