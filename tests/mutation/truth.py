"""What conditions are computed from: two that depend on the same tensor cannot hold at will."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

__all__ = ["Truth", "computed"]

_OPERATORS: dict[str, Callable[[list[bool]], bool]] = {
    "logical_not": lambda parts: not parts[0],
    "logical_and": all,
    "logical_or": any,
}


@dataclass(eq=False, slots=True)
class Truth:
    """Whether a tensor of one element is true: to be chosen, once, or computed from `parts`."""

    operator: str = ""
    parts: tuple[Truth, ...] = ()
    chosen: bool | None = field(default=None)

    def hold(self, choose: Callable[[], bool]) -> bool:
        """Its value; `choose` is asked where nobody has decided yet."""
        if self.operator:
            return _OPERATORS[self.operator]([part.hold(choose) for part in self.parts])
        if self.chosen is None:
            self.chosen = choose()
        return self.chosen


def computed(kernel: str, parts: Sequence[Truth]) -> Truth:
    """What `kernel` makes of its operands; to be chosen where that is not known."""
    named = re.fullmatch(r"(?:tir_)?(logical_(?:not|and|or))\d*", kernel)
    return Truth(named[1], tuple(parts)) if named else Truth()
