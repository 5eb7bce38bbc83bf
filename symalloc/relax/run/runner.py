"""Runs one function of a Relax module on the CPU, planned by PlanMemory, and compares it with the
unplanned module.

Everything here runs TVM and generated code in this process; `symalloc.relax.workers` keeps a crash out of the
caller's.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from mmap import PAGESIZE
from statistics import median

import numpy as np
import tvm
from tvm import relax

from symalloc.analysis.donation import donated, function_meant
from symalloc.errors import RunError
from symalloc.planner.memory_plan import PlanOptions
from symalloc.planner.memory_report.deployment import SUMS, FunctionMemory
from symalloc.planner.memory_report.function_report import PlanOutcome, floors
from symalloc.planner.memory_report.runs import (
    LimitUse,
    Output,
    Peer,
    PlanKind,
    PoolUse,
    RunOptions,
    RunReport,
    RunResult,
)
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import PoolError
from symalloc.pool.statistics_scope import statistics
from symalloc.pool.trace import ALL_EVENTS, trace_as_json
from symalloc.program.reading import PipelineName
from symalloc.program.types import ShapeType, extents_of
from symalloc.relax.extract import extract
from symalloc.relax.files.load import load_requested, lower_or_refuse, plan_or_refuse, why_not_run
from symalloc.relax.files.plan_file import module_report, plan_outcomes
from symalloc.relax.files.requests import PlanRequest
from symalloc.relax.ir_types import calls_of, relax_functions, run_error
from symalloc.relax.passes.plan_pass import PlannedModule
from symalloc.relax.run.inputs import Argument, check_binding, random_arguments, with_room
from symalloc.relax.run.machine import (
    CallResult,
    Dispatcher,
    call,
    changed,
    clocked,
    filled,
    machines,
    planned_by_tvm,
    reserved_by_tvm,
)
from symalloc.size.expr import highest

_LOG = logging.getLogger("symalloc")
_STORAGES = frozenset({"relax.memory.alloc_storage", "relax.builtin.alloc_tensor", "relax.vm.alloc_storage"})


class Runner:
    """One function of a module, planned and built once, when it is first run, at any number of bindings."""

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
        workers: int = 1,
    ) -> None:
        """`function` may be None where it is the only one, or called main.

        `plan` says who plans, `options` how PlanMemory does.  It runs on `pool`, else on TVM's pooled
        allocator, with several `workers` in the order of its dependencies.  Raises RunError.
        """
        _require_cpu(target)
        self.name, self._target = _chosen(module, function), target
        self.pool, self.plan_kind, self._workers = pool, plan, workers
        self._functions = extract(module, name="module").functions
        self._seen = self._functions[self.name]
        names = _public_names(module)
        to_this = [d for d in options.alias if function_meant(d.function, names) == self.name]
        self._donated = donated(self._seen, to_this)
        self._rooms = {d.capacity for d in to_this if d.capacity}
        self._machines = partial(machines, target=target, pipeline=pipeline)
        self._lower = partial(lower_or_refuse, module, target, pipeline)
        self._plan = partial(plan_or_refuse, target=target, options=options)

    def run(
        self, binding: Mapping[str, int], *, check: bool = False, seed: int = 0, repeat: int = 1
    ) -> RunResult:
        """Runs the function on random arguments at `binding`, `repeat` times.

        With `check` the module is also run with every tensor in memory of its own, and all outputs, and
        arguments that may have been written, are compared bit for bit; those that are donated hold nothing
        to compare, nor do elements that the unplanned module computes from memory that nothing has written.
        Raises RunError; PoolError for what the pool refuses.
        """
        calls = self.calls(binding)
        for index in range(repeat):
            calls.once(self.arguments(binding, seed), check=check and index == repeat - 1)
        return calls.result()

    def calls(self, binding: Mapping[str, int]) -> Calls:
        """Calls at one binding, to be made one by one; raises RunError where the binding does not fit."""
        check_binding(self._seen, self._own(binding), self._functions)
        return Calls(runner=self, binding=dict(binding))

    def arguments(self, binding: Mapping[str, int], seed: int) -> tuple[Argument, ...]:
        """Random arguments at `binding`; raises RunError."""
        return random_arguments(self._seen, self._own(binding), seed, self._functions)

    def passed(self, arguments: Sequence[Argument], binding: Mapping[str, int]) -> Sequence[Argument]:
        """`arguments` as the planned function takes them: with room for more rows where an alias says so."""
        if not self._rooms or self.plans is None:
            return arguments
        function = self.plans.program.functions[self.name]
        return with_room(random_arguments(function, binding, 1, self._functions), arguments)

    def _own(self, binding: Mapping[str, int]) -> Mapping[str, int]:
        return {name: value for name, value in binding.items() if name not in self._rooms}

    def compared(self, found: CallResult, arguments: Sequence[Argument]) -> tuple[str | None, str | None]:
        """The difference from the unplanned module, in words, and what is undetermined in that; either is
        None where there is none.  Raises RunError.
        """
        both = found, call(self._unplanned, self.name, arguments)
        ours, theirs = (one.arrays(but=self._donated) for one in both)
        if self._rooms:
            pairs = ((name, ours[name], one) for name, one in theirs.items())
            ours = {name: roomy[tuple(map(slice, one.shape))] for name, roomy, one in pairs}
        differing = changed(ours, theirs)
        if isinstance(differing, str):
            return differing, None
        told = [
            f"{name} differs {_share(elements)}" for name, elements in differing.items() if elements.any()
        ]
        if not told:
            return None, None
        one, other = (call(m, self.name, arguments).arrays(but=self._donated) for m in self._filled)
        undetermined = changed(one, other)
        if isinstance(undetermined, str) or undetermined.keys() != differing.keys():
            return told[0], None
        for name, elements in differing.items():
            known = ~undetermined[name]
            if known.shape != elements.shape or (elements & known).any():
                return told[0], None
        shown = (f"{name} {_share(elements)}" for name, elements in undetermined.items() if elements.any())
        return None, ", ".join(shown)

    @cached_property
    def lowered(self) -> tvm.IRModule:
        """The module where memory is planned; raises RunError."""
        return self._lower()

    @cached_property
    def plans(self) -> PlannedModule | None:
        """The module with our plans, None where somebody else plans; raises RunError."""
        return self._plan(self.lowered) if self.plan_kind == "symalloc" else None

    @cached_property
    def outcome(self) -> PlanOutcome | None:
        """A call of the function with our plan, and without."""
        return None if self.plans is None else plan_outcomes(self.plans)[self.name]

    def unused(self, binding: Mapping[str, int]) -> str | None:
        """The check at entry that a binding does not pass, so that the function runs without its plan."""
        if self.plans is None or not self.plans.fallback:
            return None
        refusing = self.plans.plans[self.name].refusing(binding)
        return next((str(guard.check) for guard in refusing if guard.defined_by is None), None)

    def taken(self, binding: Mapping[str, int], limit: int) -> LimitUse | None:
        """The bytes of a call at a binding; None where somebody else plans.  Raises RunError."""
        if self.plans is None:
            return None
        memory, constants = self._memory
        at = {what: highest(memory.sums(what, constants), binding) for what in SUMS}
        known = {what: None if memory.gap(what) else nbytes for what, nbytes in at.items()}
        storages = sum(1 for _ in calls_of(self.plans.module, _STORAGES))
        return LimitUse(limit=limit, ends=2 * PAGESIZE * storages, binding=binding, sums=known)

    @cached_property
    def _memory(self) -> tuple[FunctionMemory, int]:
        assert self.plans is not None
        found = module_report(self.plans, self._target).deployment
        return next(one for one in found.functions if one.name == self.name), found.constants

    def memory(self, binding: Mapping[str, int]) -> list[object]:
        """The tensors that the function takes for its results, and its arenas; raises RunError."""
        if self.plans is None:
            return []
        results, inputs = self.plans.program.functions[self.name].params, len(self._seen.params)
        inputs += any(isinstance(one.type, ShapeType) for one in results[inputs:])
        written, results = self.plans.module[self.name].params[inputs:], results[inputs:]
        extents = [[0 if e is None else e.evaluate(binding) for e in extents_of(r.type)] for r in results]
        given = [(at, str(p.ty.dtype)) for at, p in zip(extents, written, strict=False)]
        for arena in written[len(given) :]:
            name = arena.name.rstrip("_").replace("arena", f"{self.name}_bytes", 1)
            symbols = self.plans.module[name].params[0].ty.values
            with run_error(f"`{self.name}` cannot tell the bytes of its arena"):
                at = tvm.runtime.ShapeTuple([binding[symbol.name] for symbol in symbols])
                given.append(([self.planned[name](at)], "uint8"))
        if self.pool is None:
            return [tvm.runtime.empty(shape, dtype) for shape, dtype in given]
        return [self.pool.empty(shape, dtype, "given by the caller") for shape, dtype in given]

    @cached_property
    def planned(self) -> relax.VirtualMachine | Dispatcher:
        """The machine that is measured."""
        theirs = self.plan_kind == "tvm"
        module = planned_by_tvm(self.lowered) if theirs else self.plans.module if self.plans else self.lowered
        build = partial(self._machines, memory=self.pool or "pooled", count=self._workers + 1)
        return build(module, count=1)[0] if self._workers == 1 else Dispatcher(module, self.name, build)

    @cached_property
    def _unplanned(self) -> relax.VirtualMachine:
        # naive: what TVM's pooled allocator reserves is that of the calls that are measured
        return self._machines(self.lowered, "naive")[0]

    @cached_property
    def _filled(self) -> tuple[relax.VirtualMachine, ...]:
        """The unplanned module twice; new tensors hold other numbers in the two."""
        return tuple(self._machines(filled(self.lowered, filling), "naive")[0] for filling in (0, 1))

    def peer(self) -> relax.VirtualMachine:
        """A machine for the same module, planned by TVM, on TVM's pooled allocator; raises RunError."""
        return self._machines(planned_by_tvm(self.lowered), "pooled")[0]


@dataclass(slots=True, kw_only=True)
class Calls:
    """The calls at one binding, so far; `use` is what they took of the runner's pool, `theirs` the seconds of
    the same calls on TVM's plan and allocator.
    """

    runner: Runner
    binding: dict[str, int]
    use: PoolUse = field(default_factory=PoolUse)
    kernels: dict[str, list[float]] | None = None
    seconds: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    outputs: tuple[Output, ...] = ()
    checked: bool = False
    difference: str | None = None
    undetermined: str | None = None

    def once(self, arguments: Sequence[Argument], *, check: bool = False) -> None:
        """One call more.  Raises RunError."""
        around = nullcontext() if self.runner.pool is None else self._counted(self.runner.pool)
        memory = self.runner.memory(self.binding)
        around = around if self.kernels is None else clocked(self.runner.planned, self.kernels)
        given = self.runner.passed(arguments, self.binding)
        found = call(self.runner.planned, self.runner.name, given, around, memory)
        self.seconds.append(found.seconds)
        self.outputs = tuple(
            Output(shape=a.shape, dtype=str(a.dtype), nbytes=a.nbytes) for a in found.outputs
        )
        if check and self.runner.unused(self.binding) is None:
            self.checked = True
            different, open_elements = self.runner.compared(found, arguments)
            self.difference = self.difference or different
            self.undetermined = self.undetermined or open_elements

    def beside(self, machine: relax.VirtualMachine, arguments: Sequence[Argument]) -> None:
        """The same call on another machine.  Raises RunError."""
        self.theirs.append(call(machine, self.runner.name, arguments).seconds)

    @contextmanager
    def _counted(self, pool: InstrumentedPool) -> Iterator[None]:
        """Counts what one call, which runs within, takes of the pool; of the first also what is live in it at
        most.  Raises PoolError where guard mode finds damage behind it.
        """
        before = pool.statistics()
        pool.reset_peak()
        with nullcontext() if self.use.calls else statistics(pool) as first, pool.call():
            yield
        pool.check()
        after = pool.statistics()
        self.use += PoolUse(
            calls=1,
            allocations=after.allocs - before.allocs,
            peak_live=0 if first is None else first.figures().peak_live,
            peak_reserved=after.peak_reserved,
            commits=after.commits - before.commits,
            decommits=after.decommits - before.decommits,
        )

    def result(self) -> RunResult:
        """The figures of the calls; there must have been one."""
        runner = self.runner
        plan = None if runner.plans is None else runner.plans.plans[runner.name]
        unused = runner.unused(self.binding)
        plan = plan if unused is None else None
        floor = [highest(one.sums, self.binding) for one in floors(plan)] if plan else [None]
        return RunResult(
            function=runner.name,
            binding=self.binding,
            outputs=self.outputs,
            planned=sum(not p.buffer.returned for a in (plan.arenas if plan else ()) for p in a.placements),
            arena_bytes=runner.outcome.reserved.peak(self.binding) if runner.outcome and plan else None,
            floor_bytes=None if None in floor else sum(each or 0 for each in floor),
            seconds=tuple(self.seconds),
            plan=runner.plan_kind,
            pool=None if runner.pool is None else self.use,
            checked=self.checked,
            difference=self.difference,
            undetermined=self.undetermined,
            unused=unused,
        )


def _share(elements: np.ndarray) -> str:
    return f"in {int(elements.sum())} of {elements.size} elements"


def _chosen(module: tvm.IRModule, function: str | None) -> str:
    names = _public_names(module)
    found = function_meant(function, names)
    if found is not None:
        return found
    if not names:
        raise RunError("the module has no public Relax function to run")
    if function is None:
        raise RunError(
            f"the module has {len(names)} functions; choose one with --function: {', '.join(names)}"
        )
    raise RunError(f"the module has no public function `{function}`; it has {', '.join(names)}")


def _public_names(module: tvm.IRModule) -> list[str]:
    return [n for n, f in relax_functions(module).items() if f.attrs and "global_symbol" in f.attrs]


def _require_cpu(target: str) -> None:
    """Raises RunError for a target that cannot run here; one that TVM does not know fails in lowering."""
    try:
        chosen = tvm.target.Target(target)
    except Exception:  # TVM raises several kinds, and lowering says more
        return
    reason = why_not_run(chosen)
    if reason is not None:
        raise RunError(f"nothing can be run for the target {target!r}: {reason}")


# -- many bindings -----------------------------------------------------------------------------------------


AT = "symalloc: running at "  # what a child in guard mode says, for the case that it is its last word


def sweep(
    runner: Runner,
    bindings: Sequence[Mapping[str, int]],
    how: RunOptions = RunOptions(),  # noqa: B008 - frozen
) -> RunReport:
    """Calls the function once at each of `bindings`, in their order, again and again.

    With `how.check` the last time over is compared with the unplanned module.  With `how.compare` each call
    is made on TVM's plan and pooled allocator, too, in front of ours and behind it by turns.  What the pool
    refuses ends the run, and is in the report.  Raises RunError.
    """
    pool = runner.pool
    all_calls = [runner.calls(at) for at in bindings]
    all_calls[0].kernels = {} if how.profile else None
    peer = runner.peer() if how.compare else None
    before = 0 if peer is None else reserved_by_tvm()
    refused, at = None, None
    recording = pool.record(ALL_EVENTS) if pool is not None and how.record else None
    try:
        for done, (turn, calls) in enumerate(product(range(how.repeat), all_calls)):
            at, total = calls.binding, how.repeat * len(all_calls)
            _LOG.info("running at %s", _text(at), extra={"done": done, "total": total})
            if how.guard:
                print(AT + _text(at), file=sys.stderr, flush=True)
            arguments = runner.arguments(at, how.seed)
            if peer is not None and turn % 2:
                calls.beside(peer, arguments)
            calls.once(arguments, check=how.check and turn == how.repeat - 1)
            if peer is not None and not turn % 2:
                calls.beside(peer, arguments)
    except PoolError as error:
        refused = str(error)
    used = sum((calls.use for calls in all_calls), PoolUse())
    limited = [calls.binding for calls in all_calls] if refused is None or at is None else [at]
    taken = [] if how.limit is None else [runner.taken(binding, how.limit) for binding in limited]
    known = [one for one in taken if one is not None]
    return RunReport(
        results=tuple(calls.result() for calls in all_calls if calls.seconds),
        pool=used if used.calls else None,
        peer=_beside(all_calls, reserved_by_tvm() - before) if peer is not None and refused is None else None,
        refused=refused,
        refused_at=at if refused is not None else None,
        limit=max(known, key=lambda one: one.sums["again"] or 0, default=None),
        trace=trace_as_json(recording.stop()) if recording is not None else None,
        kernels={name: median(took) for name, took in (all_calls[0].kernels or {}).items()},
    )


def _text(binding: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in binding.items())


def _beside(all_calls: Sequence[Calls], reserved: int) -> Peer:
    turns = [list(zip(calls.seconds, calls.theirs, strict=True)) for calls in all_calls]
    return Peer(
        seconds=tuple(median(theirs for _, theirs in turn) for turn in turns),
        ratios=tuple(median(one / theirs for one, theirs in turn if theirs > 0) for turn in turns),
        reserved=reserved,
    )


def run_file(request: PlanRequest, bindings: Sequence[Mapping[str, int]], how: RunOptions) -> RunReport:
    """Loads the module and runs it; raises RunError and PoolError."""
    runner = Runner(
        load_requested(request),
        function=how.function,
        target=request.target,
        pipeline=request.pipeline,
        options=request.plan,
        plan=how.plan,
        pool=InstrumentedPool(limit=how.limit, guard=how.guard) if how.pool else None,
        workers=how.workers,
    )
    return sweep(runner, bindings, how)
