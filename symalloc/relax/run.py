"""Runs one function of a Relax module on the CPU, planned by PlanMemory, and compares it with the
unplanned module.

Everything here runs TVM and generated code in this process; `run_isolated` keeps a crash out of the caller's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
import tvm
from tvm import relax

from symalloc.plan.account.sampling import total
from symalloc.plan.account.summary import floors, highest
from symalloc.plan.model import Plan
from symalloc.plan.options import PlanOptions
from symalloc.program.donation import donated
from symalloc.relax.extract import extract
from symalloc.relax.pipeline import finishing_pipeline
from symalloc.relax.run_inputs import Argument, ShapeArgument, random_arguments
from symalloc.relax.run_lower import lower_or_refuse, plan_or_refuse
from symalloc.relax.run_result import Output, PipelineName, RunError, RunResult
from symalloc.relax.tvm_error import error_text

__all__ = ["Runner"]


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
    ) -> None:
        """Plans `module`, which is built when it is first run; `function` may be None where it is the
        only one, or called main.

        Raises RunError.
        """
        _require_cpu(target)
        self.name = _chosen(module, function)
        self._seen = extract(module, name="module").functions[self.name]
        self._donated = donated(self._seen, options.alias)
        self._target, self._pipeline = target, pipeline
        self._lowered = lower_or_refuse(module, target, pipeline)
        self._module = plan_or_refuse(self._lowered, target, options)
        self.plan = self._module.plans[self.name]

    def run(
        self, binding: Mapping[str, int], *, check: bool = False, seed: int = 0, repeat: int = 1
    ) -> RunResult:
        """Runs the function on random arguments at `binding`, `repeat` times.

        With `check` the module is also run with every tensor in memory of its own, and all outputs, and
        arguments that may have been written, are compared bit for bit; those that are donated hold nothing
        to compare.  Raises RunError.
        """
        arguments = random_arguments(self._seen, binding, seed)
        found = [_call(self._planned, self.name, arguments) for _ in range(repeat)]
        difference = self._compared(found[-1], arguments) if check else None
        return RunResult(
            function=self.name,
            binding=dict(binding),
            outputs=tuple(
                Output(shape=a.shape, dtype=str(a.dtype), nbytes=a.nbytes) for a in found[-1].outputs
            ),
            planned=sum(len(arena.placements) for arena in self.plan.arenas),
            arena_bytes=total((arena.size for arena in self.plan.arenas), binding),
            floor_bytes=_floor(self.plan, binding),
            seconds=tuple(f.seconds for f in found),
            checked=check,
            difference=difference,
        )

    def _compared(self, found: _Found, arguments: Sequence[Argument]) -> str | None:
        unplanned = _call(self._unplanned, self.name, arguments)
        return _difference(found.without(self._donated), unplanned.without(self._donated))

    @cached_property
    def _planned(self) -> relax.VirtualMachine:
        return self._machine(self._module.module)

    @cached_property
    def _unplanned(self) -> relax.VirtualMachine:
        return self._machine(self._lowered)

    def _machine(self, lowered: tvm.IRModule) -> relax.VirtualMachine:
        """Builds what CallTIRRewrite, or the planner behind it, left."""
        pipeline = finishing_pipeline(self._target, flavour=self._pipeline)
        try:
            return relax.VirtualMachine(
                relax.build(lowered, self._target, relax_pipeline=pipeline), tvm.cpu()
            )
        except Exception as error:  # the code generator and the linker raise several kinds
            raise RunError(f"TVM cannot build the module: {error_text(error)}") from None


def _chosen(module: tvm.IRModule, function: str | None) -> str:
    names = [str(v.name_hint) for v, f in module.functions_items() if _public(f)]
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


def _require_cpu(target: str) -> None:
    """Raises RunError for a target that runs elsewhere; one that TVM does not know fails in lowering."""
    try:
        device = tvm.target.Target(target).get_target_device_type()
    except Exception:  # TVM raises several kinds, and lowering says more
        return
    if device != tvm.cpu().dlpack_device_type():
        raise RunError(f"the target {target!r} does not run on the CPU, which is what `symalloc run` runs on")


def _public(function: Any) -> bool:
    return isinstance(function, relax.Function) and bool(function.attrs and "global_symbol" in function.attrs)


def _floor(plan: Plan, binding: Mapping[str, int]) -> int | None:
    found = [highest(floor.sums, binding) for floor in floors(plan)]
    return None if None in found else sum(each for each in found if each is not None)


# -- execution ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    outputs: tuple[np.ndarray, ...]
    arguments: tuple[np.ndarray, ...]
    seconds: float

    def without(self, donated: Collection[int]) -> _Found:
        """The same but for the arguments `donated`."""
        kept = tuple(a for index, a in enumerate(self.arguments) if index not in donated)
        return replace(self, arguments=kept)


def _call(machine: relax.VirtualMachine, function: str, arguments: Sequence[Argument]) -> _Found:
    """One call on fresh copies of `arguments`, which the function may write."""
    passed = [_to_tvm(a) for a in arguments]
    started = perf_counter()
    try:
        result = machine[function](*passed)
    except Exception as error:  # a kernel, a guard, a packed function
        raise RunError(f"`{function}` fails when it runs: {error_text(error)}") from None
    seconds = perf_counter() - started
    return _Found(outputs=tuple(_arrays(result)), arguments=tuple(_arrays(passed)), seconds=seconds)


def _to_tvm(argument: Argument) -> Any:
    if isinstance(argument, ShapeArgument):
        return tvm.runtime.ShapeTuple(argument)
    if isinstance(argument, tuple):
        return tuple(_to_tvm(item) for item in argument)
    return tvm.runtime.tensor(argument) if isinstance(argument, np.ndarray) else argument


def _arrays(value: Any) -> list[np.ndarray]:
    """The tensors (and shapes, as arrays) in a result, depth first."""
    if isinstance(value, tvm.runtime.Tensor):
        return [value.numpy()]
    if isinstance(value, tvm.runtime.ShapeTuple):
        return [np.array(list(value), dtype="int64")]
    if isinstance(value, int | float):
        return [np.array(value)]
    try:
        items = list(value)
    except TypeError:
        return []  # an object that holds no numbers
    return [array for item in items for array in _arrays(item)]


def _difference(ours: _Found, theirs: _Found) -> str | None:
    """Where the two differ in bits; None where they do not."""
    for what, left, right in (
        ("output", ours.outputs, theirs.outputs),
        ("argument", ours.arguments, theirs.arguments),
    ):
        if len(left) != len(right):
            return f"{len(left)} {what}s against {len(right)} of the unplanned module"
        for index, (a, b) in enumerate(zip(left, right, strict=True)):
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"{what} {index} is {a.dtype}{a.shape}; the unplanned module gives {b.dtype}{b.shape}"
            if a.tobytes() != b.tobytes():
                return f"{what} {index} differs in {_changed(a, b)} of {a.size} elements"
    return None


def _changed(left: np.ndarray, right: np.ndarray) -> int:
    """How many elements differ in bits."""
    itemsize = left.dtype.itemsize
    bits = [np.frombuffer(a.tobytes(), dtype=np.uint8).reshape(-1, itemsize) for a in (left, right)]
    return int((bits[0] != bits[1]).any(axis=1).sum())
