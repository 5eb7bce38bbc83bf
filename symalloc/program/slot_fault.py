"""Wrong uses of the shape heap."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFault:
    """A slot of a shape heap that is loaded although nothing has written it; with `size`, one that is loaded
    or `stored` although the heap has so few slots.
    """

    slot: int
    builtin: str = ""  # that uses it
    size: int | None = None
    stored: bool = False
