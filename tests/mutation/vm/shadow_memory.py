"""Who wrote each byte last, of the memory that a running program uses."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.mutation.vm.guarded_memory import address, as_bytes
from tests.mutation.vm.kernel_isolation import any_of_element

__all__ = ["ShadowMemory", "ShadowTensor"]

_NOBODY = 0


@dataclass(eq=False, slots=True)
class _Region:
    base: int
    owners: np.ndarray  # a stamp for each byte


@dataclass(eq=False, slots=True)
class ShadowTensor:
    """A tensor that the program holds: `owners` are the stamps of its bytes' writers, in shared memory."""

    tensor: Any
    stamp: int
    begin: int
    owners: np.ndarray
    itemsize: int
    written: np.ndarray  # of each element whether it was, through this tensor

    @property
    def end(self) -> int:
        """The address behind the last byte."""
        return self.begin + len(self.owners)

    def overlaps(self, other: ShadowTensor) -> bool:
        """Whether they have a byte in common."""
        return max(self.begin, other.begin) < min(self.end, other.end)


@dataclass(slots=True)
class ShadowMemory:
    """The state of one call.  A stamp stands for the content of one tensor or view."""

    regions: list[_Region] = field(default_factory=list)
    parents: list[int] = field(default_factory=lambda: [_NOBODY])
    known: dict[int, ShadowTensor] = field(default_factory=dict)  # by the object's address
    writers: set[int] = field(default_factory=set)
    kept: list[Any] = field(default_factory=list)  # so that no address is used twice

    def reserve(self, storage: Any, base: int, nbytes: int) -> None:
        """Storage that nobody has written."""
        self.kept.append(storage)
        self._add(_Region(base, np.zeros(nbytes, dtype=np.int32)))

    def external(self, tensor: Any) -> ShadowTensor:
        """A tensor that comes from outside, written as a whole."""
        base, count = address(tensor), len(as_bytes(tensor))
        stamp = self._stamp(_NOBODY)
        if self._region(base, count) is None:
            self._add(_Region(base, np.full(count, stamp, dtype=np.int32)))
        self.writers.add(stamp)
        return self._note(tensor, stamp)

    def place(self, tensor: Any) -> ShadowTensor:
        """A tensor placed on a storage: nothing is written through it yet."""
        return self._note(tensor, self._stamp(_NOBODY))

    def of(self, tensor: Any, sources: Iterable[Any] = ()) -> ShadowTensor:
        """What is known of `tensor`; a new one is a view of the source that it lies in, or external."""
        found = self.known.get(hash(tensor))
        if found is not None:
            return found
        begin, count = address(tensor), len(as_bytes(tensor))
        candidates = [self.known[hash(s)] for s in sources if hash(s) in self.known]
        candidates += reversed(self.known.values())
        for source in candidates:
            if source.begin <= begin and begin + count <= source.end:
                return self._note(tensor, self._stamp(source.stamp))
        return self.external(tensor)

    def foreign(self, tensor: ShadowTensor) -> np.ndarray:
        """For each element whether one of its bytes was last written by nobody, or by a stranger."""
        stranger = np.array([not self._related(s, tensor.stamp) for s in range(len(self.parents))])
        return any_of_element(stranger[tensor.owners], len(tensor.owners) // tensor.itemsize)

    def was_written(self, tensor: ShadowTensor, elements: np.ndarray) -> bool:
        """Whether one of the elements was ever written through the tensor, or anything through its source."""
        sources = self._line(tensor.stamp)[1:]
        return bool((elements & tensor.written).any()) or any(stamp in self.writers for stamp in sources)

    def write(self, tensor: ShadowTensor, elements: np.ndarray) -> None:
        """The elements for which `elements` is true now hold what the tensor stands for."""
        if elements.any():
            self.writers.add(tensor.stamp)
            tensor.written |= elements
            tensor.owners.reshape(-1, tensor.itemsize)[elements] = tensor.stamp

    def _related(self, one: int, two: int) -> bool:
        return one != _NOBODY and (one in self._line(two) or two in self._line(one))

    def _line(self, stamp: int) -> list[int]:
        found = []
        while stamp != _NOBODY:
            found.append(stamp)
            stamp = self.parents[stamp]
        return found

    def _stamp(self, parent: int) -> int:
        self.parents.append(parent)
        return len(self.parents) - 1

    def _note(self, tensor: Any, stamp: int) -> ShadowTensor:
        begin, count = address(tensor), len(as_bytes(tensor))
        region = self._region(begin, count)
        if region is None:  # of no bytes
            region = _Region(begin, np.zeros(count, dtype=np.int32))
        elements = int(np.prod(tensor.shape, dtype=np.int64))
        itemsize = count // elements if elements and count else 1
        found = ShadowTensor(
            tensor=tensor,
            stamp=stamp,
            begin=begin,
            owners=region.owners[begin - region.base : begin - region.base + count],
            itemsize=itemsize,
            written=np.zeros(count // itemsize, dtype=bool),
        )
        self.known[hash(tensor)] = found
        self.kept.append(tensor)
        return found

    def _add(self, region: _Region) -> None:
        if len(region.owners):
            self.regions.append(region)
            self.regions.sort(key=lambda r: r.base)

    def _region(self, begin: int, count: int) -> _Region | None:
        index = bisect_right(self.regions, begin, key=lambda r: r.base) - 1
        if index < 0 or not count:
            return None
        region = self.regions[index]
        return region if begin + count <= region.base + len(region.owners) else None
