"""The reference pool with callbacks: `InstrumentedPool` must call at the same moments."""

from __future__ import annotations

from dataclasses import dataclass

from symalloc.pool.instrumented_pool import (
    Level,
    OomCallback,
    WatermarkCallback,
    printing_errors,
    watermark_bounds,
)
from symalloc.pool.pool_errors import OutOfMemoryError
from symalloc.pool.pool_options import ALIGNMENT, PoolOptions
from tests.pool.reference.reference_pool import ReferencePool


@dataclass(slots=True, kw_only=True, eq=False)
class ReferenceWatermark:
    """A high mark is due when the bytes in use rise to `at` or more, and again once they have fallen to
    `rearm` or less in between; a low mark the other way round.
    """

    high: bool
    at: int
    rearm: int
    callback: WatermarkCallback
    armed: bool = False
    running: bool = False  # due or called: its state stays as it is meanwhile
    due: bool = False
    removed: bool = False

    def cancel(self) -> None:
        """Has the callback not called again."""
        self.removed = True

    def reached(self, in_use: int) -> bool:
        """Whether the bytes in use are at the mark, or beyond."""
        return in_use >= self.at if self.high else in_use <= self.at

    def left(self, in_use: int) -> bool:
        """Whether they have gone back far enough to arm it again."""
        return in_use <= self.rearm if self.high else in_use >= self.rearm


class ReferenceWatermarks:
    """The marks of one pool."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: list[ReferenceWatermark] = []

    def add(self, mark: ReferenceWatermark, in_use: int) -> None:
        """Adds a mark, armed unless the bytes in use are beyond it already."""
        mark.armed = not mark.reached(in_use)
        self._marks.append(mark)

    def note(self, in_use: int) -> None:
        """The bytes in use have changed."""
        for mark in self._marks:
            if mark.running or mark.removed:
                continue
            if mark.armed and mark.reached(in_use):
                mark.armed, mark.running, mark.due = False, True, True
            elif not mark.armed and mark.left(in_use):
                mark.armed = True

    def take(self) -> list[ReferenceWatermark]:
        """The marks that are due, in the order that they were added in; `done` for each of them then."""
        due = [m for m in self._marks if m.due]
        for mark in due:
            mark.due = False
        return due

    def done(self, mark: ReferenceWatermark, in_use: int) -> None:
        """The callback of a mark has returned."""
        mark.running = False
        self.note(in_use)


class ReferencePoolWithCallbacks(ReferencePool):
    """A `ReferencePool` that calls back; `InstrumentedPool` documents the methods.  For one thread."""

    def __init__(self, options: PoolOptions | None = None) -> None:
        self._watermarks = ReferenceWatermarks()
        super().__init__(options)
        self._on_oom: OomCallback | None = None
        self._retries = 0
        self._asking = False

    def on_high(
        self, at: Level, callback: WatermarkCallback, *, rearm: int | None = None
    ) -> ReferenceWatermark:
        """Calls `callback(bytes)` when the bytes in use rise to `at`; raises PoolUsageError."""
        return self._watch(True, at, callback, rearm)

    def on_low(
        self, at: Level, callback: WatermarkCallback, *, rearm: int | None = None
    ) -> ReferenceWatermark:
        """The same when they fall to `at`; raises PoolUsageError."""
        return self._watch(False, at, callback, rearm)

    def on_oom(self, callback: OomCallback | None, *, retries: int = 8) -> None:
        """Calls `callback(nbytes, tries, why)` when an allocation does not fit; True: tries again."""
        self._on_oom, self._retries = callback, retries

    def alloc(self, nbytes: int, *, align: int = ALIGNMENT, escapes: bool = False) -> int:
        """As `ReferencePool.alloc`; raises OutOfMemoryError when nobody can help."""
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
        """As `ReferencePool.free`."""
        super().free(address)
        self._call()

    def trim(self) -> int:
        """As `ReferencePool.trim`."""
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
        self._watermarks.note(used)

    def _watch(
        self, high: bool, at: Level, callback: WatermarkCallback, rearm: int | None
    ) -> ReferenceWatermark:
        at, rearm = watermark_bounds(high, at, rearm, self.options.limit)
        mark = ReferenceWatermark(high=high, at=at, rearm=rearm, callback=printing_errors(callback))
        self._watermarks.add(mark, self.used)
        return mark

    def _call(self) -> None:
        in_use = self.used
        for mark in self._watermarks.take():
            if mark.removed:
                continue
            mark.callback(in_use)
            self._watermarks.done(mark, self.used)

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
