"""Runs at many bindings, over and over, on one machine, beside TVM's own plan and allocator."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import median

from symalloc.planner.memory_report.runs import Peer, PlanKind, RunReport
from symalloc.planner.planner_options import PlanOptions
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.trace import trace_as_json
from symalloc.relax.files.load import load_requested
from symalloc.relax.files.requests import PlanRequest, PoolRequest, RefusedError
from symalloc.relax.run.inputs import Argument
from symalloc.relax.run.machine import call
from symalloc.relax.run.memory_cfg import reserved_by_tvm
from symalloc.relax.run.pool_usage import PoolMeter, make_pool, peaks
from symalloc.relax.run.runner import Calls, Runner

AT = "symalloc: running at "  # what a child in guard mode says, for the case that it is its last word


def sweep(
    runner: Runner,
    bindings: Sequence[Mapping[str, int]],
    *,
    seed: int = 0,
    repeat: int = 1,
    check: bool = False,
    compare: bool = False,
    asked: PoolRequest | None = None,
) -> RunReport:
    """Calls the function once at each of `bindings`, in their order, `repeat` times over.

    `asked` is what the runner's pool was made from.  With `check` the last time over is compared with the
    unplanned module.  With `compare` each call is made on TVM's plan and pooled allocator, too, in front of
    ours and behind it by turns.  What the pool refuses ends the run, and is in the report.  Raises RunError.
    """
    pool = runner.pool
    everything = None if pool is None else PoolMeter(pool)
    traced = asked is not None and asked.trace
    meters = (None if pool is None else PoolMeter(pool, traced, larger=everything) for _ in bindings)
    all_calls = [runner.calls(at, meter) for at, meter in zip(bindings, meters, strict=True)]
    peer = _Peer(runner, len(bindings)) if compare else None
    refused, at = None, None
    try:
        for turn, index in product(range(repeat), range(len(all_calls))):
            calls = all_calls[index]
            at = calls.binding
            if asked is not None and asked.guard:
                print(AT + _text(at), file=sys.stderr, flush=True)
            arguments = runner.arguments(at, seed)
            if peer is not None and turn % 2:
                peer.once(index, arguments)
            calls.once(arguments, check=check and turn == repeat - 1)
            if peer is not None and not turn % 2:
                peer.once(index, arguments)
    except RefusedError as error:
        refused = str(error)
    trace = _trace(all_calls, pool) if pool is not None and traced else None
    return RunReport(
        results=tuple(calls.result() for calls in all_calls if calls.seconds),
        pool=everything.use if everything is not None and everything.use.calls else None,
        peer=peer.result(all_calls) if peer is not None and refused is None else None,
        refused=refused,
        refused_at=at if refused is not None else None,
        trace=trace,
    )


def _trace(all_calls: Sequence[Calls], pool: InstrumentedPool) -> bytes:
    """The record of all calls as JSON; it says what was live in each."""
    trace = pool.stop_recording()
    for number, nbytes in enumerate(peaks(trace)):
        meter = all_calls[number % len(all_calls)].meter
        if meter is not None:
            meter.lived(nbytes)
    return trace_as_json(trace)


def _text(binding: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in binding.items())


class _Peer:
    """The same calls on TVM's plan and allocator."""

    def __init__(self, runner: Runner, count: int) -> None:
        self.name, self.machine = runner.name, runner.peer()
        self.seconds: list[list[float]] = [[] for _ in range(count)]
        self.before = reserved_by_tvm()

    def once(self, index: int, arguments: Sequence[Argument]) -> None:
        self.seconds[index].append(call(self.machine, self.name, arguments).seconds)

    def result(self, ours: Sequence[Calls]) -> Peer:
        pairs = (
            zip(calls.seconds, theirs, strict=True) for calls, theirs in zip(ours, self.seconds, strict=True)
        )
        return Peer(
            seconds=tuple(map(median, self.seconds)),
            ratios=tuple(median(one / other for one, other in turns if other > 0) for turns in pairs),
            reserved=reserved_by_tvm() - self.before,
        )


def run_file(
    request: PlanRequest,
    bindings: Sequence[Mapping[str, int]],
    *,
    options: PlanOptions,
    function: str | None,
    plan: PlanKind,
    pool: PoolRequest | None,
    check: bool,
    compare: bool,
    seed: int,
    repeat: int,
) -> RunReport:
    """Loads the module and runs it; raises RunError."""
    loaded = load_requested(request)
    runner = Runner(
        loaded,
        function=function,
        target=request.target,
        pipeline=request.pipeline,
        options=options,
        plan=plan,
        pool=None if pool is None else make_pool(pool),
    )
    return sweep(runner, bindings, seed=seed, repeat=repeat, check=check, compare=compare, asked=pool)
