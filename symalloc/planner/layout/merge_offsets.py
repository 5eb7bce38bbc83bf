"""Fewer distinct offsets: the VM evaluates each distinct expression at every call.

An offset is raised to another one that is in use already, where what lies above leaves the room for it and
the arena does not grow; all buffers at the old offset go along, so that it disappears.  Offsets that are
proved equal are the simplest case.  Constants cost nothing and stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from symalloc.planner.layout.dominance import Dominance
from symalloc.planner.layout.offsets import Alternatives
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.search.grid import Values
from symalloc.planner.search.stacking import Stacking
from symalloc.program.record import record
from symalloc.size.expr import Expr

MOST_DISTINCT = 64  # beyond it the pairs to look at cost more than the VM would save
MOST_TRIED = 400  # pairs that are possible at the samples


def merge_offsets(
    buffers: Sequence[Buffer],
    stacking: Stacking,
    placed: Sequence[Alternatives],
    arena: Alternatives,
    dominance: Dominance,
) -> list[Alternatives]:
    """Return `placed` with as few distinct offsets as raising whole groups of equal offsets gets to."""
    users = Counter(placed)
    keys = {o: _key(o) for o in users if not _free(o)}
    moving = sorted(keys, key=lambda o: (-len(keys[o]), users[o], keys[o]))  # dear ones first, by their text
    if not 1 < len(moving) <= MOST_DISTINCT:
        return list(placed)
    groups = _OffsetGroups(dominance=dominance, rooms=_rooms(buffers, stacking, placed, arena))
    tried = 0
    for old in moving:
        others = [o for o in moving if o is not old and o not in groups.moved]
        for new in sorted(groups.likely(old, others), key=lambda o: (-users[o], keys[o])):
            tried += 1
            if tried > MOST_TRIED:
                return [groups.now(offset) for offset in placed]
            if groups.may_move(old, new):
                groups.move(old, new)
                users[new] += users[old]
                break
    return [groups.now(offset) for offset in placed]


@record(kw_only=False)
class _Headroom:
    """A buffer at some offset: its size and alignment, and where the one above it, or the arena's end, is."""

    size: Expr
    alignment: int
    above: Alternatives


@dataclass(frozen=True, slots=True, kw_only=True)
class _OffsetGroups:
    """The groups of equal offsets; `moved` says where a group has gone; `rooms` are those of all that is at
    an offset now.
    """

    dominance: Dominance
    rooms: dict[Alternatives, dict[_Headroom, None]]
    moved: dict[Alternatives, Alternatives] = field(default_factory=dict)
    values: dict[Alternatives, Values] = field(default_factory=dict)

    def now(self, offset: Alternatives) -> Alternatives:
        while offset in self.moved:
            offset = self.moved[offset]
        return offset

    def move(self, old: Alternatives, new: Alternatives) -> None:
        self.moved[old] = new
        self.rooms[new].update(self.rooms[old])

    def likely(self, old: Alternatives, others: Sequence[Alternatives]) -> list[Alternatives]:
        """Return those of `others` that `old` may move to, as far as the samples tell."""
        least = self.at_samples(old)
        ceilings = [
            self.at_samples(self.now(room.above)) - self.dominance.at_samples(room.size)
            for room in self.rooms[old]
        ]
        most = np.min(ceilings, axis=0)
        table = np.array([self.at_samples(new) for new in others]).reshape(len(others), len(least))
        outside = ((table < least) | (table > most)).any(axis=1)
        return [new for new, is_outside in zip(others, outside.tolist(), strict=True) if not is_outside]

    def at_samples(self, offset: Alternatives) -> Values:
        found = self.values.get(offset)
        if found is None:
            found = self.values[offset] = np.max([self.dominance.at_samples(e) for e in offset], axis=0)
        return found

    def may_move(self, old: Alternatives, new: Alternatives) -> bool:
        """Return whether every buffer that is at `old` now may start at `new` instead."""
        return self.below(old, new) and all(self.fits(room, new) for room in self.rooms[old])

    def fits(self, room: _Headroom, new: Alternatives) -> bool:
        """Return whether the buffer of `room` at `new` is aligned and does not reach the next one."""
        aligned = all(self.dominance.align(start, room.alignment) is start for start in new)
        return aligned and self.below(tuple(start + room.size for start in new), self.now(room.above))

    def below(self, low: Alternatives, high: Alternatives) -> bool:
        """Return whether the maximum of `low` is proved to be at most that of `high`."""
        return all(any(self.dominance.reaches(b, a) for b in high) for a in low)


def _rooms(
    buffers: Sequence[Buffer], stacking: Stacking, placed: Sequence[Alternatives], arena: Alternatives
) -> dict[Alternatives, dict[_Headroom, None]]:
    """Return the limits of the offsets from above, by offset, each limit once."""
    found: dict[Alternatives, dict[_Headroom, None]] = {offset: {} for offset in placed}
    covered = {j for below in stacking.below for j in below}
    for i, buffer in enumerate(buffers):
        if i not in covered:
            found[placed[i]][_Headroom(buffer.size, buffer.alignment, arena)] = None
        for j in stacking.below[i]:
            lower = buffers[j]
            found[placed[j]][_Headroom(lower.size, lower.alignment, placed[i])] = None
    return found


def _free(offset: Alternatives) -> bool:
    return len(offset) == 1 and offset[0].as_constant is not None


def _key(offset: Alternatives) -> str:
    return ",".join(e.key for e in offset)
