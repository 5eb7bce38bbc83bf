"""Runs one function of a Relax module on the CPU, planned by PlanMemory, and compares it with the
unplanned module.

Everything here runs TVM and generated code in this process; `symalloc.relax.workers` keeps a crash out of the
caller's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property

import tvm
from tvm import relax

from symalloc.analysis.donation import donated, function_meant
from symalloc.errors import RunError
from symalloc.planner.memory_plan import Plan
from symalloc.planner.memory_report.function_report import floors
from symalloc.planner.memory_report.plan_outcome import PlanOutcome
from symalloc.planner.memory_report.runs import Output, PlanKind, RunResult
from symalloc.planner.planner_options import PlanOptions
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.program.reading import PipelineName
from symalloc.relax.extract import extract
from symalloc.relax.files.load import lower_or_refuse, plan_or_refuse
from symalloc.relax.files.plan_file import plan_outcomes
from symalloc.relax.files.target_facts import why_not_run
from symalloc.relax.passes.fill_tensors import Filling, filled
from symalloc.relax.run.inputs import Argument, check_binding, random_arguments
from symalloc.relax.run.machine import Builder, CallResult, call, difference, planned_by_tvm, undetermined
from symalloc.relax.run.pool_usage import PoolMeter
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
        self._builder = Builder(target=target, pipeline=pipeline)
        self._lowered = lower_or_refuse(module, target, pipeline)
        self._module, self.plan = self._lowered, None
        self._outcome: PlanOutcome | None = None
        if plan == "symalloc":
            planned = plan_or_refuse(self._lowered, target, options)
            self._module, self.plan = planned.module, planned.plans[self.name]
            self._outcome = plan_outcomes(planned)[self.name]
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
        calls = self.calls(binding, None if self.pool is None else PoolMeter(self.pool))
        for index in range(repeat):
            calls.once(self.arguments(binding, seed), check=check and index == repeat - 1)
        return calls.result()

    def arena_bytes(self, binding: Mapping[str, int]) -> int | None:
        """The bytes that arenas take at once; None without a plan of ours."""
        return None if self._outcome is None else self._outcome.reserved.peak(binding)

    def calls(self, binding: Mapping[str, int], meter: PoolMeter | None) -> Calls:
        """Calls at one binding, to be made one by one.  Raises RunError where it does not fit."""
        check_binding(self._seen, binding, self._functions)
        return Calls(runner=self, binding=dict(binding), meter=meter)

    def arguments(self, binding: Mapping[str, int], seed: int) -> tuple[Argument, ...]:
        """Random arguments at `binding`; raises RunError."""
        return random_arguments(self._seen, binding, seed, self._functions)

    def once(
        self, arguments: Sequence[Argument], around: AbstractContextManager[object] | None = None
    ) -> CallResult:
        """One call, which alone runs within `around`; raises RunError."""
        return call(self._planned, self.name, arguments, around)

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
    def _planned(self) -> relax.VirtualMachine:
        return self._builder.machine(self._module, self.pool or "pooled")

    @cached_property
    def _unplanned(self) -> relax.VirtualMachine:
        # naive: what TVM's pooled allocator reserves is that of the calls that are measured
        return self._builder.machine(self._lowered, "naive")

    @cached_property
    def _filled(self) -> tuple[relax.VirtualMachine, relax.VirtualMachine]:
        """The unplanned module twice; new tensors hold other numbers in the two."""
        fillings: tuple[Filling, Filling] = (0, 1)
        one, other = (self._builder.machine(filled(self._lowered, f), "naive") for f in fillings)
        return one, other

    def peer(self) -> relax.VirtualMachine:
        """A machine for the same module, planned by TVM, on TVM's pooled allocator; raises RunError."""
        return self._builder.machine(planned_by_tvm(self._lowered), "pooled")


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
        found = self.runner.once(arguments, None if self.meter is None else self.meter.call())
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
        plan = self.runner.plan
        arenas = () if plan is None else plan.arenas
        return RunResult(
            function=self.runner.name,
            binding=self.binding,
            outputs=self.outputs,
            planned=sum(not p.buffer.returned for arena in arenas for p in arena.placements),
            arena_bytes=self.runner.arena_bytes(self.binding),
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
