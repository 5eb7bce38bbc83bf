"""Units of size quantities, so that bytes are never added to elements."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Unit", "UnitError", "multiply_units"]


class Unit(StrEnum):
    """What a quantity counts."""

    NUMBER = "number"
    BYTES = "bytes"
    ELEMENTS = "elements"
    BYTES_PER_ELEMENT = "bytes/element"


class UnitError(ValueError):
    """Quantities of different units are added, compared or multiplied."""


_PRODUCTS = {
    (Unit.ELEMENTS, Unit.BYTES_PER_ELEMENT): Unit.BYTES,
    (Unit.BYTES_PER_ELEMENT, Unit.ELEMENTS): Unit.BYTES,
}


def multiply_units(left: Unit, right: Unit) -> Unit:
    """The unit of a product; raises UnitError where it has none (bytes times bytes)."""
    if left is Unit.NUMBER:
        return right
    if right is Unit.NUMBER:
        return left
    found = _PRODUCTS.get((left, right))
    if found is None:
        raise UnitError(f"cannot multiply {left} by {right}")
    return found
