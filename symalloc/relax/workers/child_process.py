"""What a child process of ours does first: it must not outlive its parent, nor take the machine with it."""

from __future__ import annotations

import os
import resource
import signal
import sys

_MEMORY_SHARE = 0.8  # of the machine's memory: a script that asks for more fails here, not elsewhere
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def prepare_child() -> None:
    """Leave Ctrl-C to the parent, write no core dumps, no byte code, limit memory, end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_memory()
    _die_with_parent()


def _limit_memory() -> None:
    size = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _MEMORY_SHARE)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _die_with_parent() -> None:
    """On Linux, be killed when the parent dies without having closed the pipe."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
