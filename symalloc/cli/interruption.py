"""The signals that end the command: what was begun is undone, and the exit status names the signal."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from time import monotonic
from types import FrameType
from typing import Any

_NAMES = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "hung up"}
_GRACE = 1.0  # seconds: whoever passes a signal on may send it twice


def status_of(number: int) -> int:
    """Return the exit status that shells give a program which a signal ended."""
    return 128 + number


class Interruption:
    """While it is entered, a signal that asks for the end raises KeyboardInterrupt, once.

    A second one that comes later ends the process at once.  Signals that are ignored stay so.  `number` is
    that of the signal that came, None while there was none.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._came = 0.0
        self._before: dict[int, Any] = {}

    @property
    def word(self) -> str:
        """The word for such an end, for a message."""
        return "interrupted" if self.number is None else _NAMES[signal.Signals(self.number).name]

    @property
    def status(self) -> int:
        """The exit status of a command that was ended."""
        return status_of(signal.SIGINT if self.number is None else self.number)

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (getattr(signal, name) for name in _NAMES if hasattr(signal, name)):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._ended)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            with suppress(ValueError):
                signal.signal(number, handler)

    def _ended(self, number: int, _: FrameType | None) -> None:
        if self.number is None:
            self.number, self._came = number, monotonic()
            raise KeyboardInterrupt
        if monotonic() - self._came > _GRACE:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
