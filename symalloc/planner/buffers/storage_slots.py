"""Tensors share whole storages, each at the start of one, as small as they can be.

Tensors are taken largest first at the sample bindings, each into the storage that grows least by it; one is
opened where that costs no more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.search.grid import Values


def storage_slots(memory: CallTimeline, tensors: Sequence[int]) -> list[list[int]]:
    """Return the members of each storage, in the order of the text, whatever a call takes then."""
    if not tensors:
        return []
    sizes: Values = memory.bytes[list(tensors)]
    shares = dict(zip(tensors, sizes / np.maximum(sizes.max(axis=0), 1.0), strict=True))
    found: list[_StorageSlot] = []
    for i in sorted(tensors, key=lambda i: (-float(shares[i].sum()), memory.tenants[i].made, i)):
        slot = _best(memory, found, i, shares[i])
        if slot is None:
            found.append(_StorageSlot(i, shares[i]))
        else:
            slot.members.append(i)
            slot.share = np.maximum(slot.share, shares[i])
    return sorted(sorted(slot.members) for slot in found)


class _StorageSlot:
    """The tensors in one storage, and its size at each binding, as a share of the largest tensor there."""

    def __init__(self, first: int, share: Values) -> None:
        self.members, self.share = [first], share


def _best(memory: CallTimeline, slots: Sequence[_StorageSlot], i: int, share: Values) -> _StorageSlot | None:
    """The storage that grows least where `i` joins; None where one of its own costs no more."""
    best, least = None, float(share.sum())
    for slot in slots:
        growth = float(np.maximum(share - slot.share, 0.0).sum())
        if (growth < least or least == 0) and memory.possible([*slot.members, i]):
            best, least = slot, growth
            if not growth:
                break
    return best
