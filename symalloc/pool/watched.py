"""The reference pool with callbacks: what `NativePool` does at watermarks and for want of memory."""

from __future__ import annotations

from fractions import Fraction

from symalloc.pool.errors import OutOfMemoryError
from symalloc.pool.marks import OomCallback, WatchCallback, high_marks, low_marks, said_aloud
from symalloc.pool.policy import ALIGNMENT, Options, PagedPool
from symalloc.pool.watches import Mark, Watches

__all__ = ["WatchedPool"]


class WatchedPool(PagedPool):
    """A `PagedPool` that calls back; `Observed` documents the methods.  For one thread."""

    def __init__(self, options: Options | None = None) -> None:
        self._watches = Watches()
        super().__init__(options)
        self._on_oom: OomCallback | None = None
        self._retries = 0
        self._asking = False

    def on_high(
        self, at: int | float | Fraction, callback: WatchCallback, *, rearm: int | None = None
    ) -> Mark:
        """Calls `callback(bytes)` when the bytes in use rise to `at`; raises PoolUsageError."""
        return self._watch(True, high_marks(at, rearm, self.options.limit), callback)

    def on_low(
        self, at: int | float | Fraction, callback: WatchCallback, *, rearm: int | None = None
    ) -> Mark:
        """The same when they fall to `at`; raises PoolUsageError."""
        return self._watch(False, low_marks(at, rearm, self.options.limit), callback)

    def on_oom(self, callback: OomCallback | None, *, retries: int = 8) -> None:
        """Calls `callback(nbytes, tries, why)` when an allocation does not fit; True: tries again."""
        self._on_oom, self._retries = callback, retries

    def cancel(self, mark: Mark) -> None:
        """Has the callback of a mark not called again."""
        self._watches.remove(mark)

    def alloc(self, nbytes: int, *, align: int = ALIGNMENT, escapes: bool = False) -> int:
        """As `PagedPool.alloc`; raises OutOfMemoryError when nobody can help."""
        tries = 0
        while True:
            try:
                address = super().alloc(nbytes, align=align, escapes=escapes)
            except OutOfMemoryError as error:
                if not self._helped(nbytes, tries, error):
                    raise
                tries += 1
            else:
                self._call()
                return address

    def free(self, address: int) -> None:
        """As `PagedPool.free`."""
        super().free(address)
        self._call()

    def trim(self) -> int:
        """As `PagedPool.trim`."""
        given = super().trim()
        self._call()
        return given

    @property
    def used(self) -> int:
        """Bytes that the ranges have handed out, to callers or to bins."""
        return self._used

    @used.setter
    def used(self, used: int) -> None:
        self._used = used
        self._watches.note(used)

    def _watch(self, high: bool, marks: tuple[int, int], callback: WatchCallback) -> Mark:
        mark = Mark(high=high, at=marks[0], rearm=marks[1], callback=said_aloud(callback))
        self._watches.add(mark, self.used)
        return mark

    def _call(self) -> None:
        in_use = self.used
        for mark in self._watches.take():
            mark.callback(in_use)
            self._watches.done(mark, self.used)

    def _helped(self, nbytes: int, tries: int, error: OutOfMemoryError) -> bool:
        if self._on_oom is None or self._asking or tries >= self._retries:
            return False
        self._asking = True
        try:
            return bool(self._on_oom(nbytes, tries, str(error)))
        except Exception as failed:
            text = f"{error}\n  the on_oom callback failed: {type(failed).__name__}: {failed}"
            raise OutOfMemoryError(text) from failed
        finally:
            self._asking = False
