"""What calls of one module do: plain runs with memory filled one way and another, and a traced run."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tests.models.execution import tensors_in
from tests.mutation.kernels import kernels_of
from tests.mutation.vm.exact_builtins import make_exact
from tests.mutation.vm.guarded_memory import ALLOCATOR, PATTERNS, as_bytes, fill_with, overrun
from tests.mutation.vm.invocations import Invocation, arguments, guarded
from tests.mutation.vm.kernel_library import KernelLibrary
from tests.mutation.vm.tracing import Trace

__all__ = ["Arrays", "Observation", "Ready", "VmFault", "make_ready"]

Arrays = tuple[tuple[tuple[int, ...], str, bytes], ...]

# of an error's text -> the kind of fault
_KINDS = (
    ("negative-size", "negative-size"),
    ("negative-extent", "negative-extent"),
    ("negative-offset", "negative-offset"),
    ("exceeds:", "exceeds"),
    ("use-after-kill", "use-after-kill"),
    ("guarded memory:", "size"),
    ("relative_byte_offset + view_size", "view-exceeds"),
    ("byte_offset", "byte-offset"),
    ("outside of the original array", "view-exceeds"),
    ("partially outside", "view-exceeds"),
    ("expected Tensor", "use-after-kill"),
    ("None", "use-after-kill"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VmFault:
    """One way in which a module goes wrong: where it was seen, and in which run ("plain" or "traced")."""

    kind: str
    what: str
    invocation: Invocation
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One call: what it returned, or the error; its tensor arguments afterwards; what went wrong; which Relax
    functions it entered, where it was traced.
    """

    invocation: Invocation
    error: str | None
    results: Arrays
    arguments: Arrays
    faults: tuple[VmFault, ...] = ()
    entered: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Ready:
    """A module built for being run in this process."""

    source: tvm.IRModule
    finished: tvm.IRModule
    executable: Any
    constants: tuple[Any, ...]
    inputs: dict[Invocation, list[Any]] = field(default_factory=dict)

    def plain(self, invocation: Invocation) -> Observation:
        """Called twice on memory filled one way, and once filled the other way."""
        before = [as_bytes(c).copy() for c in self.constants]
        fill_with(PATTERNS[0])
        machine = self._machine()
        one, first = self._call(machine, invocation)
        kept = _arrays(first)
        two, _ = self._call(machine, invocation)
        fill_with(PATTERNS[1])
        three, _ = self._call(self._machine(), invocation)
        found = []
        if one.error is None:
            if _arrays(first) != kept:
                found.append(("second-call", "the second call changes what the first returned"))
            if _outcome(one) != _outcome(two):
                found.append(("second-call", two.error or "the second call does something else"))
            if _outcome(one) != _outcome(three):
                found.append(("poison", three.error or "what was in memory before makes a difference"))
        if self._restored(before):
            found.append(("constant-written", "a constant has changed"))
        faults = [VmFault(kind=k, what=w, invocation=invocation, run="plain") for k, w in found]
        return replace(one, faults=(*one.faults, *two.faults, *three.faults, *faults))

    def traced(self, invocation: Invocation, entering: Callable[[str], None]) -> Observation:
        """Called with every kernel on copies of its arguments."""
        fill_with(PATTERNS[0])
        machine = self._machine()
        kernels = kernels_of(self.finished).keys()
        functions = {str(g.name_hint) for g in self.finished.get_global_vars()} - kernels
        trace = Trace(kernels=kernels, functions=functions, entering=entering)
        machine.set_instrument(trace)
        before = [as_bytes(c).copy() for c in self.constants]
        observed, result = self._call(machine, invocation, trace.memory.external)
        trace.finish(result)
        if self._restored(before):
            trace.note("constant-written", "a constant has changed")
        faults = [
            VmFault(kind=kind, what=what, invocation=invocation, run="traced")
            for kind, what in trace.faults.items()
        ]
        return replace(observed, faults=(*faults, *observed.faults), entered=frozenset(trace.entered))

    def _restored(self, before: Sequence[np.ndarray]) -> bool:
        """Whether a constant has changed; all are as `before` again."""
        changed = False
        for constant, content in zip(map(as_bytes, self.constants), before, strict=True):
            changed |= bool((constant != content).any())
            constant[:] = content
        return changed

    def _machine(self) -> relax.VirtualMachine:
        return relax.VirtualMachine(self.executable.mod, tvm.cpu(), memory_cfg={tvm.cpu(): ALLOCATOR})

    def _call(
        self, machine: Any, invocation: Invocation, known: Callable[[Any], Any] = lambda _: None
    ) -> tuple[Observation, Any]:
        if invocation not in self.inputs:
            self.inputs[invocation] = arguments(self.source[invocation.function], invocation)
        given = guarded(self.inputs[invocation])
        for tensor in tensors_in(given):
            known(tensor)
        result, error, faults = None, None, []
        try:
            result = machine[invocation.function](*given)
        except Exception as raised:  # whatever a builtin, a kernel or an assertion raises
            error = f"{type(raised).__name__}: {raised}"
            faults.append((kind_of(error), error[:300]))
        if overrun():
            faults.append(("out-of-bounds", "a byte beside a block has changed"))
        if error is None and _holds_nothing(result):
            faults.append(("use-after-kill", "the caller is given nothing in place of a tensor"))
        observed = Observation(
            invocation=invocation,
            error=error,
            results=_arrays(result),
            arguments=_arrays(given),
            faults=tuple(VmFault(kind=k, what=w, invocation=invocation, run="plain") for k, w in faults),
        )
        return observed, result


def kind_of(error: str) -> str:
    """The kind of fault that the text of an error tells of; "refused" where a check has stopped the call."""
    return next((kind for text, kind in _KINDS if text in error), "refused")


def make_ready(source: tvm.IRModule, finish: Callable[[Any], Any], library: KernelLibrary | None) -> Ready:
    """Build `source` by the rest of its pipeline; to be called in a process that runs nothing else."""
    with tvm.target.Target("llvm"):
        finished = finish(source)
    executable = (library or KernelLibrary(finished)).link(finished)
    make_exact()
    gc.disable()
    return Ready(source, finished, executable, _constants(finished))


def _constants(mod: tvm.IRModule) -> tuple[Any, ...]:
    found: dict[int, Any] = {}

    def visit(node: Any) -> None:
        if type(node).__name__ == "GenericConst" and isinstance(node.value, tvm.runtime.Tensor):
            found[hash(node.value)] = node.value

    for _, function in mod.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return tuple(found.values())


def _holds_nothing(value: Any) -> bool:
    return value is None or (
        isinstance(value, Sequence) and not isinstance(value, str) and any(map(_holds_nothing, value))
    )


def _arrays(value: Any) -> Arrays:
    return tuple((tuple(t.shape), str(t.dtype), as_bytes(t).tobytes()) for t in tensors_in(value))


def _outcome(observed: Observation) -> tuple[object, ...]:
    return observed.error, observed.results, observed.arguments


def differences(one: Observation, two: Observation) -> Sequence[str]:
    """Where two calls differ: "error", "results", "arguments"."""
    pairs: Mapping[str, tuple[object, object]] = {
        "error": (one.error is None, two.error is None),
        "results": (one.results, two.results),
        "arguments": (one.arguments, two.arguments),
    }
    return [name for name, (a, b) in pairs.items() if a != b]
