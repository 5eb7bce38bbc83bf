"""Tensors share whole storages, each at the start of one, as small as they can be.

Tensors are taken largest first at the sample bindings, each into the storage that grows least by it; one is
opened where that costs no more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symalloc.planner.buffers.call_timeline import CallTimeline
from symalloc.planner.grid import Values


def storage_slots(memory: CallTimeline, tensors: Sequence[int]) -> list[list[int]]:
    """Return the members of each storage, in the order of the text, whatever a call takes then."""
    if not tensors:
        return []
    sizes: Values = memory.bytes[list(tensors)]
    shares = dict(zip(tensors, sizes / np.maximum(sizes.max(axis=0), 1.0), strict=True))
    found: list[list[int]] = []
    table = np.zeros_like(sizes)  # how large each storage is, as a share of the largest tensor
    for i in sorted(tensors, key=lambda i: (-float(shares[i].sum()), memory.tenants[i].made, i)):
        number = _best(memory, found, table[: len(found)], i, shares[i])
        if number is None:
            number = len(found)
            found.append([])
        found[number].append(i)
        np.maximum(table[number], shares[i], out=table[number])
    return sorted(map(sorted, found))


def _best(
    memory: CallTimeline, slots: Sequence[Sequence[int]], table: Values, i: int, share: Values
) -> int | None:
    """The storage that grows least where `i` joins, by number; None where one of its own costs no more."""
    own = float(share.sum())
    growths = np.maximum(share - table, 0.0).sum(axis=1)
    for number in growths.argsort(kind="stable").tolist():
        if own and growths[number] >= own:
            return None
        if memory.may_join(slots[number], i):
            return int(number)
    return None
