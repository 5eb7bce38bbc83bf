"""When callbacks at watermarks are due: edges, with hysteresis.  The native core decides alike."""

from __future__ import annotations

from dataclasses import dataclass

from symalloc.pool.marks import WatchCallback

__all__ = ["Mark", "Watches"]


@dataclass(slots=True, kw_only=True, eq=False)
class Mark:
    """A high mark is due when the bytes in use rise to `at` or more, and again once they have fallen to
    `rearm` or less in between; a low mark the other way round.
    """

    high: bool
    at: int
    rearm: int
    callback: WatchCallback
    armed: bool = False
    running: bool = False  # its state stays as it is meanwhile

    def reached(self, in_use: int) -> bool:
        """Whether the bytes in use are at the mark, or beyond."""
        return in_use >= self.at if self.high else in_use <= self.at

    def left(self, in_use: int) -> bool:
        """Whether they have gone back far enough to arm it again."""
        return in_use <= self.rearm if self.high else in_use >= self.rearm


class Watches:
    """The marks of one pool."""

    __slots__ = ("_due", "_marks")

    def __init__(self) -> None:
        self._marks: list[Mark] = []
        self._due: list[Mark] = []

    def add(self, mark: Mark, in_use: int) -> None:
        """Adds a mark, armed unless the bytes in use are beyond it already."""
        mark.armed = not mark.reached(in_use)
        self._marks.append(mark)

    def remove(self, mark: Mark) -> None:
        """Takes a mark away; nothing where it is gone."""
        self._marks = [m for m in self._marks if m is not mark]
        self._due = [m for m in self._due if m is not mark]

    def note(self, in_use: int) -> None:
        """The bytes in use have changed."""
        for mark in self._marks:
            if mark.running:
                continue
            if mark.armed and mark.reached(in_use):
                mark.armed, mark.running = False, True
                self._due.append(mark)
            elif not mark.armed and mark.left(in_use):
                mark.armed = True

    def take(self) -> list[Mark]:
        """The marks that are due, in the order that they were added in; `done` for each of them then."""
        due = [m for m in self._marks if m in self._due]
        self._due = []
        return due

    def done(self, mark: Mark, in_use: int) -> None:
        """The callback of a mark has returned."""
        mark.running = False
        self.note(in_use)
