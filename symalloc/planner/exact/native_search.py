"""The search of `capacity_search.py` in C++: the same decisions, thirty times as fast and more.

Where the native library is missing, `capacity_search.CapacitySearch` answers the same, later.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from symalloc.native.flat_lists import lists_of
from symalloc.native.native_functions import packer_functions
from symalloc.planner.exact.capacity_search import FORGET, Rule, SearchOutcome
from symalloc.planner.exact.clique_instance import CliqueInstance

SLICE = 500  # steps at a time; Python hears of an interrupt only between them
LARGEST = 1 << 60  # bytes; sums of sizes below it stay within 64 bits
RULES: dict[Rule, int] = {"lowest": 0, "contested": 1}
OUTCOMES = (SearchOutcome.CUT, SearchOutcome.FOUND, SearchOutcome.NONE)


def fits(instance: CliqueInstance, capacity: int) -> bool:
    """True where all numbers of the problem fit the library's; `capacity` is in bytes."""
    return sum(instance.nbytes) + sum(instance.alignments) * instance.unit + capacity < LARGEST


class NativeSearch:
    """`capacity_search.CapacitySearch` on the native library, which must be loaded; raises MemoryError."""

    def __init__(self, instance: CliqueInstance, capacity: int) -> None:
        """`capacity` is in bytes and holds each buffer by itself."""
        self.instance = instance
        self.steps = 0
        self._search = packer_functions.create(
            -(-capacity // instance.unit),
            _int64(instance.sizes),
            _int64(instance.alignments),
            _int64((capacity - nbytes) // instance.unit for nbytes in instance.nbytes),
            lists_of(instance.cliques),
            lists_of(instance.members),
            lists_of(instance.neighbours),
        )

    @property
    def offsets(self) -> dict[int, int]:
        """Offsets in bytes by id: the packing, where the last attempt found one."""
        offsets = array("q", packer_functions.offsets(self._search))
        return {id_: self.instance.unit * at for id_, at in zip(self.instance.ids, offsets, strict=True)}

    def attempt(self, *, priorities: Sequence[int], rule: Rule, limit: int) -> SearchOutcome:
        """As `CapacitySearch.attempt`."""
        last = self.steps + limit
        packer_functions.begin(self._search, _int32(priorities), RULES[rule], FORGET)
        outcome = self._go(last)
        while outcome is SearchOutcome.CUT and self.steps < last:
            outcome = self._go(last)
        return outcome

    def _go(self, last: int) -> SearchOutcome:
        """Go on for one slice, or until `steps` is `last`."""
        outcome = OUTCOMES[packer_functions.go(self._search, min(SLICE, last - self.steps))]
        self.steps = packer_functions.steps(self._search)
        return outcome


def _int32(numbers: Iterable[int]) -> bytes:
    return array("i", numbers).tobytes()


def _int64(numbers: Iterable[int]) -> bytes:
    return array("q", numbers).tobytes()
