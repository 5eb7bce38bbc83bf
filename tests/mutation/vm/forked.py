"""Functions run in forked children, which a mutant may take down or never leave."""

from __future__ import annotations

import faulthandler
import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Ended", "in_child"]

_SIZE = 8  # bytes in front of each message


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a child ended: what it told on the way, in order, and why it died (None where it did not)."""

    told: tuple[Any, ...]
    died: str | None


def in_child(action: Callable[[Callable[[Any], None]], None], *, seconds: float = 60) -> Ended:
    """Run `action` in a child; it is given a function that sends the parent whatever it is called with."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        os.close(reading)
        _be_child(action, writing)
    os.close(writing)
    told, over = _listen(reading, seconds)
    os.close(reading)
    if over:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    died = "hangs" if over else None
    if not over and os.WIFSIGNALED(status):
        died = signal.Signals(os.WTERMSIG(status)).name
    elif not over and os.WEXITSTATUS(status):
        died = f"exit status {os.WEXITSTATUS(status)}"
    return Ended(told=tuple(told), died=died)


def _be_child(action: Callable[[Callable[[Any], None]], None], writing: int) -> None:
    faulthandler.disable()  # pytest's writes to a stream of its own
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)

    def tell(message: Any) -> None:
        data = pickle.dumps(message)
        data = len(data).to_bytes(_SIZE, "little") + data
        while data:
            data = data[os.write(writing, data) :]

    status = 1
    try:
        action(tell)
        status = 0
    except BaseException as error:
        tell(error if isinstance(error, KeyboardInterrupt) else RuntimeError(repr(error)))
    finally:
        os._exit(status)


def _listen(reading: int, seconds: float) -> tuple[list[Any], bool]:
    """The messages, and whether the time was over before the child had said all."""
    told, data, deadline = [], b"", time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return told, True
        piece = os.read(reading, 1 << 20)
        if not piece:
            return told, False
        data += piece
        while len(data) >= _SIZE and len(data) >= _SIZE + (size := int.from_bytes(data[:_SIZE], "little")):
            told.append(pickle.loads(data[_SIZE : _SIZE + size]))
            data = data[_SIZE + size :]
