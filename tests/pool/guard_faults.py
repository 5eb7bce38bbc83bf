"""Random faults of programs on a pool in guard mode, in processes of their own.

A fault is planned from a seed: what is done to a block, how many threads do it, and how many others allocate
and free meanwhile.  A process must end by SIGSEGV, having named one of the blocks.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import random
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Barrier, Event, Thread

from symalloc.pool.instrumented_pool import InstrumentedPool
from tests.pool.processes import died

PAGE = os.sysconf("SC_PAGESIZE")
GRAIN = 64
KINDS = ("overrun", "underrun", "use after free", "free of a protected block")
HANDLERS = ("none", "faulthandler above", "those there are")  # TVM's among them
SAYS = {
    "overrun": "is overrun: byte",
    "underrun": "is underrun: byte -",
    "use after free": "after it was freed: byte",
    "free of a protected block": (
        "(while its pages are protected|is overrun|is underrun|after it was freed): byte"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """`threads` in all, of which `faulting` run into a protected page, each with a block of its own."""

    seed: int
    kind: str
    writes: bool
    threads: int
    faulting: int
    handler: str  # which other handler of the signal there is

    @classmethod
    def random(cls, seed: int) -> FaultPlan:
        """The plan of a seed."""
        source = random.Random(seed)
        threads = source.randint(1, 8)
        return cls(
            seed=seed,
            kind=source.choice(KINDS),
            writes=source.random() < 0.5,
            threads=threads,
            faulting=source.randint(1, threads),
            handler=source.choice(HANDLERS),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEnd:
    """How a process ended: its status, what it said, and seconds from the first fault to its end."""

    plan: FaultPlan
    status: int
    said: str
    seconds: float

    @property
    def fault(self) -> str:
        """What is wrong with it; "" where nothing is."""
        if self.status != -signal.SIGSEGV:
            return f"status {self.status}"
        named = rf"symalloc: `fault-\d+` of \d+ bytes [^\n]*{SAYS[self.plan.kind]}"
        return "" if re.search(named, self.said) else "not named"


def run_fault(plan: FaultPlan) -> FaultEnd:
    """Carry the plan out in a copy of this process."""
    status, said = died(lambda: _Program(plan).run())
    ended = time.monotonic()
    begun = re.search(r"@([\d.]+)\n", said)
    return FaultEnd(plan=plan, status=status, said=said, seconds=ended - float(begun[1]) if begun else 0.0)


class _Program:
    """What the process does."""

    def __init__(self, plan: FaultPlan) -> None:
        self.plan = plan
        if plan.handler != "those there are":
            faulthandler.disable()
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        self.pool = InstrumentedPool(guard=True)
        if plan.handler == "faulthandler above":
            faulthandler.enable(2)
        self.together = Barrier(plan.threads + 1)

    def run(self) -> None:
        works: list[Callable[[int], None]] = [self._fault] * self.plan.faulting
        works += [self._churn] * (self.plan.threads - self.plan.faulting)
        for index, work in enumerate(works):
            Thread(target=work, args=(index,), daemon=True).start()
        self.together.wait()
        Event().wait()

    def _churn(self, index: int) -> None:
        source = random.Random(f"{self.plan.seed} {index}")
        self.together.wait()
        kept: list[int] = []
        while True:
            if len(kept) > source.randint(0, 8):
                self.pool.free(kept.pop(source.randrange(len(kept))))
            kept.append(self.pool.alloc(source.randint(1, 3 * PAGE), tag=f"other-{index}"))

    def _fault(self, index: int) -> None:
        source = random.Random(f"{self.plan.seed} {index}")
        nbytes = source.randint(1, 2 * PAGE)
        handle = self.pool.alloc(nbytes, tag=f"fault-{index}")
        start = handle.pointer
        self.together.wait()
        if index == 0:
            os.write(2, f"@{time.monotonic()}\n".encode())
        if self.plan.kind == "free of a protected block":
            ctypes.CDLL(None).mprotect(ctypes.c_void_p(start // PAGE * PAGE), ctypes.c_size_t(PAGE), 0)
            last = (start + nbytes) // PAGE * PAGE
            ctypes.CDLL(None).mprotect(ctypes.c_void_p(last), ctypes.c_size_t(PAGE), 0)
            self.pool.free(handle)
            _touch(start, False)  # where there is nothing to check, freeing reads nothing
        end = start + -(-nbytes // GRAIN) * GRAIN
        if self.plan.kind == "overrun":
            _touch(end + source.randrange(PAGE), self.plan.writes)
        elif self.plan.kind == "underrun":
            _touch(start // PAGE * PAGE - 1 - source.randrange(PAGE), self.plan.writes)
        else:
            self.pool.free(handle)
            _touch(start + source.randrange(nbytes), self.plan.writes)


def _touch(address: int, writes: bool) -> None:
    """Read or write a byte without the interpreter's lock, so that other threads go on."""
    if writes:
        ctypes.memset(address, 1, 1)
    else:
        ctypes.memmove(ctypes.create_string_buffer(1), address, 1)
