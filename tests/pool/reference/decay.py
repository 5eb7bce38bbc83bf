"""Giving back what nobody needs any more, as time goes by.

Time is cut into periods.  The least memory that was free at a time during a period is memory that nobody
needed during all of it, and goes back at its end.  TCMalloc releases by the low-water mark of its free lists,
jemalloc by epochs (dirty_decay_ms); what is needed again and again within a period stays.
"""

from __future__ import annotations


class Decay:
    """The least bytes that were free since a period began, and when that was.  Times are seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._since: float | None = None
        self._least = 0

    def note(self, free: int) -> None:
        """To be called after the free bytes became fewer."""
        self._least = min(self._least, free)

    def ended(self, now: float) -> bool:
        """True where a period has ended, or the first one has not begun."""
        return self._since is None or now - self._since >= self.seconds

    def needless(self, free: int) -> int:
        """The bytes to give back at the end of a period, of `free` that there are."""
        return 0 if self._since is None else min(self._least, free)

    def begin(self, now: float, free: int) -> None:
        self._since, self._least = now, free
