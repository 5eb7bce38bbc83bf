"""The points a constraint is asked about: bounds for every symbol, and assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from symalloc.size.condition import Condition

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Integers with `lower[s] <= s <= upper[s]` that satisfy every assumption.

    A symbol without an entry has the bounds `default_lower` and `default_upper`: by default those of a tensor
    dimension.
    """

    lower: Mapping[str, int] = field(default_factory=dict)
    upper: Mapping[str, int] = field(default_factory=dict)
    assumptions: tuple[Condition, ...] = ()
    default_lower: int = 0
    default_upper: int = INT64_MAX

    def lower_of(self, name: str) -> int:
        """The least value that `name` may take, assumptions aside."""
        return self.lower.get(name, self.default_lower)

    def upper_of(self, name: str) -> int:
        """The greatest value that `name` may take, assumptions aside."""
        return self.upper.get(name, self.default_upper)

    def assuming(self, conditions: Iterable[Condition]) -> Domain:
        """The domain with further assumptions; itself where there are none."""
        added = tuple(conditions)
        return replace(self, assumptions=(*self.assumptions, *added)) if added else self

    def contains(self, binding: Mapping[str, int]) -> bool:
        """True if `binding` (which must name every symbol of the assumptions) lies in the domain."""
        inside = all(self.lower_of(s) <= v <= self.upper_of(s) for s, v in binding.items())
        return inside and all(a.evaluate(binding) for a in self.assumptions)
