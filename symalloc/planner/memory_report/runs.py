"""The results of runs: outputs, times, and the memory they took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from symalloc.errors import UsageError
from symalloc.options import FLAG, TEXT, choice, option, read_fields, whole
from symalloc.planner.memory_report.deployment import Sum

# who plans: PlanMemory, StaticPlanBlockMemory, or nobody, so that every tensor has a storage of its own
PlanKind: TypeAlias = Literal["symalloc", "tvm", "none"]

_MOST_REPEATS, _MOST_WORKERS = 1_000_000, 256  # calls at one binding, threads


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a run.  Raises UsageError for values that make no sense.

    `pool`: all memory comes from one, which has at most `limit` bytes, is in guard mode, or is recorded.
    `compare`: each call is also made with TVM's plan.  `profile`: the kernels of the first calls are timed.
    """

    repeat: int = option(1, whole(1, _MOST_REPEATS), "Go through all values so many times.")
    plan: PlanKind = option(
        "symalloc", choice(PlanKind), "The planner: symalloc, TVM's StaticPlanBlockMemory, or none."
    )
    check: bool = option(False, FLAG, "Compare with the unplanned module, bit for bit.")
    function: str | None = option(None, TEXT, "The function to run, if there are several.")
    seed: int = option(0, whole(0), "The seed of the random arguments.")
    workers: int = option(
        1,
        whole(1, _MOST_WORKERS),
        "Run kernels on so many threads, each once those are over that it waits for.",
    )
    compare: bool = False
    pool: bool = False
    limit: int | None = None
    guard: bool = False
    record: bool = False
    profile: bool = False

    def __post_init__(self) -> None:
        read_fields(self)
        if self.profile and self.workers > 1:
            raise UsageError(f"workers={self.workers} runs kernels side by side, whose times say little")


class Output(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tensor that came back: extents in elements, the element type's name, and its bytes."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int = msgspec.field(name="bytes")


class PoolUse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The use of a pool, in bytes.

    `allocations` counts those of `calls` calls; `peak_live` what was asked for and not freed at most, the
    machine's last result included, and `peak_reserved` what was backed by pages.  `commits` and `decommits`
    count the times that pages were taken from the system and given back.
    """

    calls: int = 0
    allocations: int = 0
    peak_live: int = 0
    peak_reserved: int = 0
    commits: int = 0
    decommits: int = 0

    def __add__(self, other: PoolUse) -> PoolUse:
        """The use by the calls of both: peaks are those of the larger."""
        return PoolUse(
            calls=self.calls + other.calls,
            allocations=self.allocations + other.allocations,
            peak_live=max(self.peak_live, other.peak_live),
            peak_reserved=max(self.peak_reserved, other.peak_reserved),
            commits=self.commits + other.commits,
            decommits=self.decommits + other.decommits,
        )

    @property
    def ratio(self) -> float:
        """Reserved over live; 1 where nothing is."""
        return self.peak_reserved / self.peak_live if self.peak_live else 1.0

    @property
    def storages(self) -> float:
        """Allocations a call."""
        return self.allocations / self.calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The same calls with TVM's plan on TVM's pooled allocator.

    `seconds` and `ratios` hold medians at each binding, in their order: of a call, and of our time over
    TVM's in the same turn.  `reserved`: bytes that the allocator has at last.
    """

    seconds: tuple[float, ...]
    ratios: tuple[float, ...]
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a run at one binding.

    `planned` counts the tensors in arenas; `arena_bytes` (of all arenas) and `floor_bytes` are those of the
    function that was run, under its binding; None where they depend on what becomes known only later.
    `plan`: who planned.  `pool`: what these calls took of a pool, where they ran on one.
    `difference` says where the unplanned module gave other bits, None where it gave the same; `checked`
    whether it was asked at all.  `unused`: the check at entry that fails, so that the function runs without
    its plan, and there is nothing to compare.  `undetermined`: elements that are computed from memory that
    nothing has written, and in which the two differ for that; None where there are none.  `seconds` holds the
    time of each repetition.
    """

    function: str
    binding: Mapping[str, int]
    outputs: tuple[Output, ...]
    planned: int
    arena_bytes: int | None
    floor_bytes: int | None
    seconds: tuple[float, ...]
    plan: PlanKind = "symalloc"
    pool: PoolUse | None = None
    checked: bool = False
    difference: str | None = None
    undetermined: str | None = None
    unused: str | None = None

    @property
    def ratio(self) -> float | None:
        """Arena over floor; 1 where nothing is live."""
        if self.arena_bytes is None or self.floor_bytes is None:
            return None
        return self.arena_bytes / self.floor_bytes if self.floor_bytes else 1.0

    @property
    def output_bytes(self) -> int:
        """The bytes of all tensors that came back."""
        return sum(output.nbytes for output in self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """The bytes that the function takes, with its plan, at one binding beside the limit of a pool; null where
    that is not known.  `ends`: what pages that storages do not fill can take beside them.
    """

    limit: int
    ends: int
    binding: Mapping[str, int]
    sums: Mapping[Sum, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Runs at several bindings.

    `pool` sums up what a pool was used for; `peer` is there where it was asked for.  `refused`: why the pool
    ended the run, with `refused_at`, the binding that it was running at; `results` holds what came before.
    `limit`: what the function takes where the pool has one, at the binding that was refused, or at the one
    that takes most.  `trace`: the pool's record as JSON.
    """

    results: tuple[RunResult, ...]
    pool: PoolUse | None = None
    peer: Peer | None = None
    refused: str | None = None
    refused_at: Mapping[str, int] | None = None
    limit: LimitUse | None = None
    trace: bytes | None = None
    kernels: Mapping[str, float] = field(default_factory=dict)  # the seconds of each, if they are timed

    @property
    def ok(self) -> bool:
        """Return whether nothing was refused and nothing differed."""
        return self.refused is None and all(r.difference is None for r in self.results)
