"""Sets of numbers: the regions of a function, the leaves of its parameters.

At run time a set is an `int` with one bit a member, which makes union, intersection and complement as fast as
Python can.  To the type checker each kind of set is a type of its own, and none is an `int`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

    class _NumberSet:
        def __init__(self, bits: int = 0) -> None: ...
        def __int__(self) -> int: ...
        def __bool__(self) -> bool: ...
        def __or__(self, other: Self) -> Self: ...
        def __and__(self, other: Self) -> Self: ...
        def __invert__(self) -> Self: ...

    class RegionSet(_NumberSet):
        """A set of regions, by number."""

    class LeafSet(_NumberSet):
        """A set of leaves of a function's parameters, by number; tuple fields count one by one."""

else:
    RegionSet = LeafSet = int

NO_REGIONS = RegionSet()
NO_LEAVES = LeafSet()


def members(numbers: RegionSet | LeafSet) -> Iterator[int]:
    """The numbers in a set, in ascending order."""
    bits = int(numbers)
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def contains(numbers: RegionSet | LeafSet, number: int) -> bool:
    """True if `number` is in a set."""
    return int(numbers) >> number & 1 == 1


def only_member(numbers: RegionSet) -> int | None:
    """The member of a set that has exactly one."""
    bits = int(numbers)
    return bits.bit_length() - 1 if bits.bit_count() == 1 else None


def region_set(numbers: Iterable[int]) -> RegionSet:
    """The set of the regions with these numbers."""
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return RegionSet(bits)
