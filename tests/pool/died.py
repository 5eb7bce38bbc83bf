"""Running something that may end its process."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable


def died(work: Callable[[], object]) -> tuple[int, str]:
    """How a copy of this process ends that does `work`, and what it says on the standard error stream.

    The status is minus the signal's number where a signal ends it, 0 where `work` returns.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(writes, 2)
            faulthandler.enable(2)  # pytest has enabled it with a stream of its own
            work()
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads) as stream:
        said = stream.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said
