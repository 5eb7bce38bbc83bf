"""Runs one function of a Relax module on the CPU, planned by PlanMemory, and compares it with the
unplanned module.

Everything here runs TVM and generated code in this process; `symalloc.relax.workers` keeps a crash out of the
caller's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from statistics import median

import tvm
from tvm import relax

from symalloc.analysis.donation import donated, function_meant
from symalloc.errors import RunError
from symalloc.planner.memory_plan import Plan
from symalloc.planner.memory_report.function_report import PlanOutcome, floors
from symalloc.planner.memory_report.runs import Output, Peer, PlanKind, PoolUse, RunReport, RunResult
from symalloc.planner.planner_options import PlanOptions
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import PoolError
from symalloc.pool.trace import ALL_EVENTS, Alloc, CallBegin, Free, Trace, trace_as_json
from symalloc.program.reading import PipelineName
from symalloc.relax.extract import extract
from symalloc.relax.files.load import load_requested, lower_or_refuse, plan_or_refuse, why_not_run
from symalloc.relax.files.plan_file import plan_outcomes
from symalloc.relax.files.requests import PlanRequest, PoolRequest, RefusedError
from symalloc.relax.run.inputs import Argument, check_binding, random_arguments
from symalloc.relax.run.machine import (
    CallResult,
    call,
    difference,
    filled,
    machine,
    planned_by_tvm,
    undetermined,
)
from symalloc.relax.run.memory_cfg import reserved_by_tvm
from symalloc.size.evaluation import highest


class Runner:
    """One function of a module, planned and built once, run at any number of bindings."""

    def __init__(
        self,
        module: tvm.IRModule,
        *,
        function: str | None = None,
        target: str = "llvm",
        pipeline: PipelineName = "default",
        options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
        plan: PlanKind = "symalloc",
        pool: InstrumentedPool | None = None,
    ) -> None:
        """Plans `module`, which is built when it is first run; `function` may be None where it is the
        only one, or called main.

        `plan` says who plans, `options` how PlanMemory does.  It runs on `pool`, else on TVM's pooled
        allocator.  Raises RunError.
        """
        _require_cpu(target)
        self.name = _chosen(module, function)
        self.pool, self.plan_kind = pool, plan
        self._functions = extract(module, name="module").functions
        self._seen = self._functions[self.name]
        to_this = [d for d in options.alias if function_meant(d, _public_names(module)) == self.name]
        self._donated = donated(self._seen, to_this)
        self._machine = partial(machine, target=target, pipeline=pipeline)
        self._lowered = lower_or_refuse(module, target, pipeline)
        self._module, self.plan = self._lowered, None
        self.outcome: PlanOutcome | None = None
        if plan == "symalloc":
            planned = plan_or_refuse(self._lowered, target, options)
            self._module, self.plan = planned.module, planned.plans[self.name]
            self.outcome = plan_outcomes(planned)[self.name]
        elif plan == "tvm":
            self._module = planned_by_tvm(self._lowered)

    def run(
        self, binding: Mapping[str, int], *, check: bool = False, seed: int = 0, repeat: int = 1
    ) -> RunResult:
        """Runs the function on random arguments at `binding`, `repeat` times.

        With `check` the module is also run with every tensor in memory of its own, and all outputs, and
        arguments that may have been written, are compared bit for bit; those that are donated hold nothing
        to compare, nor do elements that the unplanned module computes from memory that nothing has written.
        Raises RunError; RefusedError for what the pool refuses.
        """
        calls = self.calls(binding)
        for index in range(repeat):
            calls.once(self.arguments(binding, seed), check=check and index == repeat - 1)
        return calls.result()

    def calls(self, binding: Mapping[str, int], *, traced: bool = False) -> Calls:
        """Calls at one binding, to be made one by one; somebody else records those that are `traced`.

        Raises RunError where the binding does not fit.
        """
        check_binding(self._seen, binding, self._functions)
        meter = None if self.pool is None else PoolMeter(self.pool, traced)
        return Calls(runner=self, binding=dict(binding), meter=meter)

    def arguments(self, binding: Mapping[str, int], seed: int) -> tuple[Argument, ...]:
        """Random arguments at `binding`; raises RunError."""
        return random_arguments(self._seen, binding, seed, self._functions)

    def compared(self, found: CallResult, arguments: Sequence[Argument]) -> tuple[str | None, str | None]:
        """The difference from the unplanned module, in words, and what is undetermined in that; either is
        None where there is none.  Raises RunError.
        """
        unplanned = call(self._unplanned, self.name, arguments).without(self._donated)
        kept = found.without(self._donated)
        told = difference(kept, unplanned)
        if told is None:
            return None, None
        one, other = (call(m, self.name, arguments).without(self._donated) for m in self._filled)
        open_elements = undetermined(kept, unplanned, (one, other))
        return (told, None) if open_elements is None else (None, open_elements)

    @cached_property
    def planned(self) -> relax.VirtualMachine:
        """The machine that is measured."""
        return self._machine(self._module, self.pool or "pooled")

    @cached_property
    def _unplanned(self) -> relax.VirtualMachine:
        # naive: what TVM's pooled allocator reserves is that of the calls that are measured
        return self._machine(self._lowered, "naive")

    @cached_property
    def _filled(self) -> tuple[relax.VirtualMachine, relax.VirtualMachine]:
        """The unplanned module twice; new tensors hold other numbers in the two."""
        return self._machine(filled(self._lowered, 0), "naive"), self._machine(
            filled(self._lowered, 1), "naive"
        )

    def peer(self) -> relax.VirtualMachine:
        """A machine for the same module, planned by TVM, on TVM's pooled allocator; raises RunError."""
        return self._machine(planned_by_tvm(self._lowered), "pooled")


@dataclass(slots=True, kw_only=True)
class Calls:
    """The calls at one binding, so far.  `meter` counts what they take of the runner's pool."""

    runner: Runner
    binding: dict[str, int]
    meter: PoolMeter | None
    seconds: list[float] = field(default_factory=list)
    outputs: tuple[Output, ...] = ()
    checked: bool = False
    difference: str | None = None
    undetermined: str | None = None

    def once(self, arguments: Sequence[Argument], *, check: bool = False) -> None:
        """One call more.  Raises RunError."""
        around = None if self.meter is None else self.meter.call()
        found = call(self.runner.planned, self.runner.name, arguments, around)
        self.seconds.append(found.seconds)
        self.outputs = tuple(
            Output(shape=a.shape, dtype=str(a.dtype), nbytes=a.nbytes) for a in found.outputs
        )
        if check:
            self.checked = True
            different, open_elements = self.runner.compared(found, arguments)
            self.difference = self.difference or different
            self.undetermined = self.undetermined or open_elements

    def result(self) -> RunResult:
        """The figures of the calls; there must have been one."""
        plan, outcome = self.runner.plan, self.runner.outcome
        arenas = () if plan is None else plan.arenas
        return RunResult(
            function=self.runner.name,
            binding=self.binding,
            outputs=self.outputs,
            planned=sum(not p.buffer.returned for arena in arenas for p in arena.placements),
            arena_bytes=None if outcome is None else outcome.reserved.peak(self.binding),
            floor_bytes=None if plan is None else _floor(plan, self.binding),
            seconds=tuple(self.seconds),
            plan=self.runner.plan_kind,
            pool=None if self.meter is None else self.meter.use,
            checked=self.checked,
            difference=self.difference,
            undetermined=self.undetermined,
        )


def _chosen(module: tvm.IRModule, function: str | None) -> str:
    names = _public_names(module)
    if function is None and len(names) == 1:
        return names[0]
    if function is None and "main" in names:
        return "main"
    if function is not None and function in names:
        return function
    if not names:
        raise RunError("the module has no public Relax function to run")
    if function is None:
        raise RunError(
            f"the module has {len(names)} functions; choose one with --function: {', '.join(names)}"
        )
    raise RunError(f"the module has no public function `{function}`; it has {', '.join(names)}")


def _public_names(module: tvm.IRModule) -> list[str]:
    functions = ((v, f) for v, f in module.functions_items() if isinstance(f, relax.Function))
    return [str(v.name_hint) for v, f in functions if f.attrs and "global_symbol" in f.attrs]


def _require_cpu(target: str) -> None:
    """Raises RunError for a target that cannot run here; one that TVM does not know fails in lowering."""
    try:
        chosen = tvm.target.Target(target)
    except Exception:  # TVM raises several kinds, and lowering says more
        return
    reason = why_not_run(chosen)
    if reason is not None:
        raise RunError(f"nothing can be run for the target {target!r}: {reason}")


def _floor(plan: Plan, binding: Mapping[str, int]) -> int | None:
    found = [highest(floor.sums, binding) for floor in floors(plan)]
    return None if None in found else sum(each for each in found if each is not None)


# -- many bindings -----------------------------------------------------------------------------------------


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
    traced = asked is not None and asked.trace
    all_calls = [runner.calls(at, traced=traced) for at in bindings]
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
    used = sum((calls.meter.use for calls in all_calls if calls.meter is not None), PoolUse())
    return RunReport(
        results=tuple(calls.result() for calls in all_calls if calls.seconds),
        pool=used if used.calls else None,
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
            meter.use += PoolUse(peak_live=nbytes)
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
        turns = (
            zip(calls.seconds, other, strict=True) for calls, other in zip(ours, self.seconds, strict=True)
        )
        return Peer(
            seconds=tuple(map(median, self.seconds)),
            ratios=tuple(median(one / other for one, other in turn if other > 0) for turn in turns),
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


# -- what calls take of a pool ------------------------------------------------------------------------------


@dataclass(slots=True)
class PoolMeter:
    """Sums up what calls take of a pool.

    The first call is recorded, for what is live in it at most; where calls are `traced` somebody else records
    all of them, and adds that.
    """

    pool: InstrumentedPool
    traced: bool = False
    use: PoolUse = field(default_factory=PoolUse)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Counts one call, which runs within; raises RefusedError where guard mode finds damage behind it."""
        before = self.pool.statistics()
        self.pool.reset_peak()
        record = self.use.calls == 0 and not self.traced
        if record:
            self.pool.start_recording(ALL_EVENTS)
        with self.pool.call():
            yield
        if record:
            self.use += PoolUse(peak_live=peaks(self.pool.stop_recording(), before.live)[-1])
        try:
            self.pool.check()
        except PoolError as damage:
            raise RefusedError(str(damage)) from None
        after = self.pool.statistics()
        self.use += PoolUse(
            calls=1,
            allocations=after.allocs - before.allocs,
            peak_reserved=after.peak_reserved,
            commits=after.commits - before.commits,
            decommits=after.decommits - before.decommits,
        )


def make_pool(asked: PoolRequest) -> InstrumentedPool:
    """The pool, which records where that is asked for; raises RunError."""
    try:
        pool = InstrumentedPool(limit=asked.limit, guard=asked.guard)
    except PoolError as error:
        raise RunError(str(error)) from None
    if asked.trace:
        pool.start_recording(ALL_EVENTS)
    return pool


def peaks(trace: Trace, before: int = 0) -> list[int]:
    """The most bytes that are live within each call, `before` being so in front of the first."""
    live, sizes, found = before, dict[int, int](), list[int]()
    for event in trace.events:
        match event:
            case CallBegin():
                found.append(live)
            case Alloc(block=block, nbytes=nbytes):
                sizes[block] = nbytes
                live += nbytes
                found[-1:] = [max(live, *found[-1:])] if found else []
            case Free(block=block):
                live -= sizes.pop(block, 0)
    return found
