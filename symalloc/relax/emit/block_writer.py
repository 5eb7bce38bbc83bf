"""Writes the bindings of a block anew in one native call: most stay, and tensors are placed in storages."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from tvm.ir import Op

from symalloc.native.library import has_native
from symalloc.native.native_functions import module_functions
from symalloc.relax.ir_types import BindingNode, Node, PrimNode, VarNode

FEW = 12  # bindings that are written faster one by one
_COPIED, _FRESH, _PLACED = range(3)  # what a step does, of four numbers

_ALLOCATES = Op.get("relax.builtin.alloc_tensor")
_PLACES = Op.get("relax.memory.alloc_tensor")


def writes_natively(bindings: Node) -> bool:
    """Return whether a BlockWriter is of use, and to be had."""
    return len(bindings) >= FEW and has_native("symalloc.module.write_bindings")


class BlockWriter:
    """The steps that make new bindings of the `old` ones, in order; what no step speaks of stays as it is.

    `addresses` are those of the old ones.  `numbers` is for offsets that were placed at before.
    """

    def __init__(self, old: Node) -> None:
        self.old = old
        self.addresses = array("q")
        self.addresses.frombytes(module_functions.addresses(old))
        self.numbers: dict[int, int] = {}
        self._steps = array("q")
        self._next = 0  # the first of the old bindings that are kept behind the last step
        self._fresh: list[BindingNode] = []
        self._offsets: list[PrimNode] = []

    def _keep(self, end: int, start: int) -> None:
        """The old bindings up to `end` stay; those from there to `start` do not."""
        if self._next < end:
            self._steps.extend((_COPIED, self._next, end, 0))
        self._next = start

    def add(self, bindings: Sequence[BindingNode], begin: int, end: int) -> None:
        """New bindings stand for the old ones from `begin` to `end`, which may be none."""
        self._keep(begin, end)
        self._steps.extend((_FRESH, len(self._fresh), len(self._fresh) + len(bindings), 0))
        self._fresh += bindings

    def number(self, offset: PrimNode) -> int:
        """The number of an offset to place tensors at."""
        self._offsets.append(offset)
        return len(self._offsets) - 1

    def place(self, index: int, storage: int, offset: int) -> None:
        """The allocation `index` lies in a storage from here on, at an offset, both by number."""
        self._keep(index, index + 1)
        self._steps.extend((_PLACED, index, storage, offset))

    def written(self, storages: Sequence[VarNode | None]) -> Node:
        """The new bindings, an array of TVM's; raises ValueError where what is placed is no allocation."""
        self._keep(len(self.addresses), 0)
        steps = self._steps.tobytes()
        return module_functions.write_bindings(
            self.old, self._fresh, storages, self._offsets, steps, _ALLOCATES, _PLACES
        )
