"""Writes the bindings of a block anew in one native call: most stay, and tensors are placed in storages."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from tvm.ir import Op

from symalloc.native.library import has_native
from symalloc.native.native_functions import module_functions
from symalloc.relax.ir_types import BindingNode, Node, PrimNode, VarNode

FEW = 12  # bindings that are written faster one by one
_FRESH, _PLACED = range(2)  # what a step does

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
        self._steps = array("q")  # of five numbers each
        self._fresh: list[BindingNode] = []
        self._offsets: list[PrimNode] = []

    def add(self, bindings: Sequence[BindingNode], begin: int, end: int) -> None:
        """New bindings stand for the old ones from `begin` to `end`, which may be none."""
        self._steps.extend((_FRESH, begin, end, len(self._fresh), len(self._fresh) + len(bindings)))
        self._fresh += bindings

    def number(self, offset: PrimNode) -> int:
        """The number of an offset to place tensors at."""
        self._offsets.append(offset)
        return len(self._offsets) - 1

    def place(self, index: int, storage: int, offset: int) -> None:
        """The allocation `index` lies in a storage from here on, at an offset, both by number."""
        self._steps.extend((_PLACED, index, index + 1, storage, offset))

    def written(self, storages: Sequence[VarNode | None]) -> Node:
        """The new bindings, an array of TVM's; raises ValueError where what is placed is no allocation."""
        steps = self._steps.tobytes()
        return module_functions.write_bindings(
            self.old, self._fresh, storages, self._offsets, steps, _ALLOCATES, _PLACES
        )
