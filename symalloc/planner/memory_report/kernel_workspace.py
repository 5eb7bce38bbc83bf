"""Memory that kernels take for themselves while they run: TVM's workspace, which no planner of Relax sees.

A compiled kernel takes it from a pool of the calling thread (TVMBackendAllocWorkspace) and gives it back
before it returns.  The pool keeps what it has; see `pool_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from symalloc.planner.memory_report.arena_lifetimes import undominated
from symalloc.size.choice import maximum
from symalloc.size.expr import ZERO, Expr

PAGE = 4096  # bytes; the pool rounds every request up to it
MOST_CALLS = 16  # after so many calls of a function its pool is taken as settled


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceAlloc:
    """A kernel takes `size` bytes; `slot` names them until they are given back."""

    slot: int
    size: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceFree:
    """A kernel gives back what it took as `slot`."""

    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWorkspace:
    """The workspace that one kernel takes and gives back, in order, in bytes over the kernel's own symbols.

    `problem` says why that is not known; `steps` is empty then.  `parallel`: some of it is taken inside a
    parallel loop, by each worker thread from a pool of its own.
    """

    steps: tuple[WorkspaceAlloc | WorkspaceFree, ...] = ()
    problem: str | None = None
    parallel: bool = False

    def substitute(self, replacement: Mapping[str, Expr]) -> KernelWorkspace:
        """The same at a call that gives the kernel's symbols these values."""
        steps = (
            WorkspaceAlloc(slot=s.slot, size=s.size.substitute(replacement))
            if isinstance(s, WorkspaceAlloc)
            else s
            for s in self.steps
        )
        return KernelWorkspace(steps=tuple(steps), problem=self.problem, parallel=self.parallel)

    @property
    def peak(self) -> Expr:
        """The most bytes that the kernel holds at one moment."""
        return (
            maximum(*undominated(sum(sizes.values(), start=ZERO) for sizes in self._held())) if self else ZERO
        )

    def __bool__(self) -> bool:
        """Return whether it takes anything that is known."""
        return bool(self.steps)

    def _held(self) -> Iterator[dict[int, Expr]]:
        """Yield what is held after each allocation."""
        held: dict[int, Expr] = {}
        for step in self.steps:
            if isinstance(step, WorkspaceAlloc):
                held[step.slot] = step.size
                yield dict(held)
            else:
                held.pop(step.slot, None)


def workspace_pool_bytes(calls: Sequence[KernelWorkspace], binding: Mapping[str, int]) -> int:
    """Return the bytes that TVM's pool of a fresh thread holds once a function has made `calls` many times.

    Follows apache-tvm 0.27's WorkspacePool: whole pages, the smallest free block that fits, otherwise the
    largest free one is exchanged for one of the size that is asked for.  Nothing is ever returned.  Raises
    KeyError where `binding` lacks a symbol.
    """
    pool = _WorkspacePool()
    sizes = [[_sized(step, binding) for step in call.steps] for call in calls]
    before = -1
    for _ in range(MOST_CALLS):
        for steps in sizes:
            pool.run(steps)
        if pool.total == before:
            break
        before = pool.total
    return pool.total


def _sized(step: WorkspaceAlloc | WorkspaceFree, binding: Mapping[str, int]) -> tuple[int, int | None]:
    """Return (slot, bytes taken, or None for what is given back)."""
    if isinstance(step, WorkspaceFree):
        return step.slot, None
    pages = -(-step.size.evaluate(binding) // PAGE)
    return step.slot, max(pages, 1) * PAGE


class _WorkspacePool:
    """Free blocks, by size, and those that are lent."""

    def __init__(self) -> None:
        self.free: list[int] = []
        self.lent: dict[int, int] = {}

    @property
    def total(self) -> int:
        return sum(self.free) + sum(self.lent.values())

    def run(self, steps: Iterable[tuple[int, int | None]]) -> None:
        for slot, size in steps:
            if size is not None:
                self.lent[slot] = self.block(size)
            elif slot in self.lent:
                self.free = sorted([*self.free, self.lent.pop(slot)])

    def block(self, size: int) -> int:
        """The size of the block that is handed out for `size` bytes."""
        fitting = next((i for i, block in enumerate(self.free) if block >= size), None)
        if fitting is not None:
            return self.free.pop(fitting)
        if self.free:
            self.free.pop()
        return size
