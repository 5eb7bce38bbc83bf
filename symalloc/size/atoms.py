"""The atoms of size expressions: symbols, and the operations that are no polynomials.

Division and remainder are Python's: they round towards minus infinity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from symalloc.size.condition import Condition
    from symalloc.size.expr import Expr

__all__ = ["Atom", "FloorDiv", "Max", "Min", "Mod", "Monomial", "Select", "Symbol"]


class _Keyed:
    """An atom orders, compares and hashes by the text of its canonical form."""

    key: str

    @property
    def symbols(self) -> frozenset[str]:
        """The names of all symbols, at every depth."""
        raise NotImplementedError

    def evaluate(self, binding: Mapping[str, int]) -> int:
        """The value under `binding`; raises KeyError and ZeroDivisionError as `Expr.evaluate` does."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Keyed) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: _Keyed) -> bool:
        return self.key < other.key


@dataclass(frozen=True, eq=False)
class Symbol(_Keyed):
    """A symbolic integer, named as the user named it."""

    name: str
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.name)

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset((self.name,))

    def evaluate(self, binding: Mapping[str, int]) -> int:
        return binding[self.name]


@dataclass(frozen=True, eq=False)
class FloorDiv(_Keyed):
    """`numerator // denominator`, rounding towards minus infinity; carries the obligation `denominator >=
    1`.
    """

    numerator: Expr
    denominator: Expr
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"//({self.numerator.key})({self.denominator.key})")

    @property
    def symbols(self) -> frozenset[str]:
        return self.numerator.symbols | self.denominator.symbols

    def evaluate(self, binding: Mapping[str, int]) -> int:
        return self.numerator.evaluate(binding) // self.denominator.evaluate(binding)


@dataclass(frozen=True, eq=False)
class Mod(_Keyed):
    """`numerator % denominator` with the sign of the denominator; carries the obligation `denominator >=
    1`.
    """

    numerator: Expr
    denominator: Expr
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"%({self.numerator.key})({self.denominator.key})")

    @property
    def symbols(self) -> frozenset[str]:
        return self.numerator.symbols | self.denominator.symbols

    def evaluate(self, binding: Mapping[str, int]) -> int:
        return self.numerator.evaluate(binding) % self.denominator.evaluate(binding)


@dataclass(frozen=True, eq=False)
class Min(_Keyed):
    """The least of two or more expressions."""

    operands: tuple[Expr, ...]
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"min({','.join(e.key for e in self.operands)})")

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset().union(*(e.symbols for e in self.operands))

    def evaluate(self, binding: Mapping[str, int]) -> int:
        return min(e.evaluate(binding) for e in self.operands)


@dataclass(frozen=True, eq=False)
class Max(_Keyed):
    """The greatest of two or more expressions."""

    operands: tuple[Expr, ...]
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"max({','.join(e.key for e in self.operands)})")

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset().union(*(e.symbols for e in self.operands))

    def evaluate(self, binding: Mapping[str, int]) -> int:
        return max(e.evaluate(binding) for e in self.operands)


@dataclass(frozen=True, eq=False)
class Select(_Keyed):
    """`then` where `condition` holds, `otherwise` elsewhere."""

    condition: Condition
    then: Expr
    otherwise: Expr
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"?({self.condition.key})({self.then.key})({self.otherwise.key})")

    @property
    def symbols(self) -> frozenset[str]:
        return self.condition.symbols | self.then.symbols | self.otherwise.symbols

    def evaluate(self, binding: Mapping[str, int]) -> int:
        return (self.then if self.condition.evaluate(binding) else self.otherwise).evaluate(binding)


Atom: TypeAlias = Symbol | FloorDiv | Mod | Min | Max | Select
Monomial: TypeAlias = tuple[tuple[Atom, int], ...]  # atoms in the order of their keys, powers from 1
