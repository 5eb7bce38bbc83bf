"""Stacking: for each pair of interfering buffers, who lies below whom.

A stacking taken from a packing at one binding is right for every binding: offsets that follow from it
keep each pair apart whatever the sizes; only the height of the arena varies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacking:
    """`order` lists buffer ids bottom first; `below[i]` holds the interfering ids that come before i in
    it.
    """

    order: tuple[int, ...]
    below: Mapping[int, frozenset[int]]


def stacking(order: Sequence[int], neighbours: Mapping[int, frozenset[int]]) -> Stacking:
    """The stacking in which of two neighbours the one that comes first in `order` lies below."""
    rank = {id_: position for position, id_ in enumerate(order)}
    below = {i: frozenset(j for j in neighbours[i] if rank[j] < rank[i]) for i in order}
    return Stacking(order=tuple(order), below=below)
