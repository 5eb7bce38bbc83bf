"""Replaying a trace on a policy, and comparing the peaks of its reserved and live bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from time import perf_counter
from typing import Protocol, runtime_checkable

from symalloc.pool.core.pool_errors import OutOfMemoryError, PoolUsageError
from symalloc.pool.core.pool_options import PoolOptions
from symalloc.pool.core.pool_statistics import PoolStatistics
from symalloc.pool.core.reference_pool import ReferencePool
from symalloc.pool.simulating.peers import BestFit, Buddy, ExactSize, PowerOfTwo
from symalloc.pool.simulating.trace import Alloc, Free, Trace


class Allocator(Protocol):
    """An allocator that a trace can be replayed on."""

    @property
    def reserved(self) -> int:
        """Bytes that it holds of the operating system now."""

    def alloc(self, nbytes: int, *, escapes: bool = False) -> int:
        """The address of a new block; raises OutOfMemoryError."""

    def free(self, address: int) -> None:
        """Free a block."""


@runtime_checkable
class _HasStatistics(Protocol):
    def statistics(self) -> PoolStatistics: ...


def _native(options: PoolOptions) -> Allocator:
    from symalloc.pool.core.native_pool import NativePool  # loads tvm-ffi

    return NativePool(options)


POLICIES: Mapping[str, Callable[[PoolOptions], Allocator]] = {
    "pool": ReferencePool,
    "pool-separate": lambda options: ReferencePool(replace(options, separate_escaping=True)),
    "exact-size": lambda _: ExactSize(),
    "power-of-two": lambda _: PowerOfTwo(),
    "best-fit": lambda _: BestFit(),
    "buddy": lambda _: Buddy(),
    "native": _native,
}
NOT_ASKED = ("native",)  # replayed only where it is named


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One trace on one policy; sizes in bytes.

    `operations` counts allocations and frees, `seconds` the time of all, simulated in Python.
    `bytes_given_back` went to the operating system in `decommits` operations; `left_live` bytes stayed live.
    `out_of_memory` says which event ran out of memory, None: none did; figures go as far as that event.
    """

    trace: str
    policy: str
    operations: int
    peak_live: int
    peak_reserved: int
    seconds: float
    left_live: int = 0
    commits: int = 0
    decommits: int = 0
    bytes_given_back: int = 0
    out_of_memory: str | None = None

    @property
    def ratio(self) -> float:
        """Peak reserved to peak live; 1 where nothing was allocated."""
        return self.peak_reserved / self.peak_live if self.peak_live else 1.0

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.operations / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySummary:
    """One policy over several traces: the geometric mean and the worst of the ratios."""

    policy: str
    mean: float
    worst: float


def checked_policies(names: Sequence[str]) -> list[str]:
    """`names`, each once; all but the native one where there are none; raises PoolUsageError."""
    for name in names:
        if name not in POLICIES:
            raise PoolUsageError(f"no policy is called `{name}`; there are {', '.join(POLICIES)}")
    return list(dict.fromkeys(names)) or [p for p in POLICIES if p not in NOT_ASKED]


def replay(trace: Trace, policy: str, options: PoolOptions) -> Replayed:
    """`trace` on the policy of that name, one of `POLICIES`."""
    allocator = POLICIES[policy](options)
    live = peak_live = peak_reserved = operations = 0
    blocks: dict[int, tuple[int, int]] = {}
    failed: str | None = None
    begin = perf_counter()
    for index, event in enumerate(trace.events):
        if isinstance(event, Alloc):
            try:
                address = allocator.alloc(event.nbytes, escapes=event.block in trace.escape)
            except OutOfMemoryError as error:
                failed = f"event {index}: {str(error).splitlines()[0]}"
                break
            blocks[event.block] = (address, event.nbytes)
            live += event.nbytes
            peak_live = max(peak_live, live)
            peak_reserved = max(peak_reserved, allocator.reserved)
        elif isinstance(event, Free):
            address, nbytes = blocks.pop(event.block)
            allocator.free(address)
            live -= nbytes
        else:
            continue
        operations += 1
    seconds = perf_counter() - begin
    pages = allocator.statistics() if isinstance(allocator, _HasStatistics) else None
    return Replayed(
        trace=trace.name,
        policy=policy,
        operations=operations,
        peak_live=peak_live,
        peak_reserved=peak_reserved,
        seconds=seconds,
        left_live=live,
        commits=pages.commits if pages else 0,
        decommits=pages.decommits if pages else 0,
        bytes_given_back=pages.decommitted if pages else 0,
        out_of_memory=failed,
    )


def total(results: Sequence[Replayed]) -> PolicySummary:
    """The summary of one policy's results, at least one."""
    ratios = [r.ratio for r in results]
    return PolicySummary(
        policy=results[0].policy,
        mean=geometric_mean(ratios),
        worst=max(ratios),
    )
