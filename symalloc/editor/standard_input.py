"""Standard input that can be ended from within: a thread that waits for a client is let go."""

from __future__ import annotations

import io
import os
import select
from typing import Any


class EndableInput(io.RawIOBase):
    """The bytes of the descriptor `source`, until it ends or `end` is called."""

    def __init__(self, source: int) -> None:
        super().__init__()
        self._source = source
        self._wake, self._waker = os.pipe()

    def readable(self) -> bool:
        """Return True: it is there to be read."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Wait for bytes and put them into `buffer`; return their number, 0 at the end."""
        ready, _, _ = select.select([self._source, self._wake], [], [])
        if self._wake in ready:
            return 0
        view = memoryview(buffer)
        found = os.read(self._source, len(view))
        view[: len(found)] = found
        return len(found)

    def end(self) -> None:
        """Have whoever reads, or will, meet the end."""
        os.write(self._waker, b".")
