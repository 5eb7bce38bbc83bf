"""Memory that kernels take for themselves while they run: TVM's workspace, which no planner of Relax sees.

A compiled kernel takes it from a pool of the calling thread (TVMBackendAllocWorkspace) and gives it back
before it returns.  The pool keeps what it has; see `pool_bytes`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from symalloc.size.choice import maximum
from symalloc.size.expr import ZERO, Expr
from symalloc.size.sign import undominated

PAGE = 4096  # bytes; the pool rounds every request up to it
MOST_CALLS = 16  # after so many calls of a function its pool is taken as settled


class WorkspaceStep(NamedTuple):
    """A kernel takes `size` bytes as `slot`, or gives them back where `size` is None."""

    slot: int
    size: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWorkspace:
    """The workspace that one kernel takes and gives back, in order, in bytes over the kernel's own symbols.

    `problem` says why that is not known; `steps` is empty then.  `parallel`: some of it is taken inside a
    parallel loop, by each worker thread from a pool of its own.
    """

    steps: tuple[WorkspaceStep, ...] = ()
    problem: str | None = None
    parallel: bool = False

    def substitute(self, replacement: Mapping[str, Expr]) -> KernelWorkspace:
        """Return the same at a call that gives the kernel's symbols these values."""
        steps = (
            WorkspaceStep(slot, None if size is None else size.substitute(replacement))
            for slot, size in self.steps
        )
        return replace(self, steps=tuple(steps))

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols of all sizes."""
        return frozenset().union(*(size.symbols for _, size in self.steps if size is not None))

    @property
    def peak(self) -> Expr:
        """The most bytes that the kernel holds at one moment."""
        held: dict[int, Expr] = {}
        sums: list[Expr] = []
        for slot, size in self.steps:
            if size is None:
                held.pop(slot, None)
            else:
                held[slot] = size
                sums.append(sum(held.values(), start=ZERO))
        return maximum(*undominated(sums)) if sums else ZERO

    def __bool__(self) -> bool:
        """Return whether it takes anything that is known."""
        return bool(self.steps)


def workspace_pool_bytes(calls: Sequence[KernelWorkspace], binding: Mapping[str, int]) -> int:
    """Return the bytes that TVM's pool of a fresh thread holds once a function has made `calls` many times.

    Follows apache-tvm 0.27's WorkspacePool: whole pages, the smallest free block that fits, otherwise the
    largest free one is exchanged for one of the size that is asked for.  Nothing is ever returned.  Raises
    KeyError where `binding` lacks a symbol.
    """
    requests = [(slot, _pages(size, binding)) for call in calls for slot, size in call.steps]
    free: list[int] = []  # blocks by size
    lent: dict[int, int] = {}
    before = -1
    for _ in range(MOST_CALLS):
        for slot, wanted in requests:
            if wanted is not None:
                lent[slot] = _taken(free, wanted)
            elif slot in lent:
                insort(free, lent.pop(slot))
        held = sum(free) + sum(lent.values())
        if held == before:
            break
        before = held
    return before


def _pages(size: Expr | None, binding: Mapping[str, int]) -> int | None:
    return None if size is None else max(-(-size.evaluate(binding) // PAGE), 1) * PAGE


def _taken(free: list[int], wanted: int) -> int:
    """Take the block that the pool hands out for `wanted` bytes from `free`; return its size."""
    fitting = bisect_left(free, wanted)
    if fitting < len(free):
        return free.pop(fitting)
    if free:
        free.pop()
    return wanted
