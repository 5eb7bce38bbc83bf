"""Virtual machines for a lowered module, and calls on them: what came out, as arrays, and how it differs."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal, TypeAlias

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call
from tvm.relax import transform

from symalloc.errors import RunError
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import PoolError
from symalloc.program.reading import PipelineName
from symalloc.relax.files.requests import RefusedError
from symalloc.relax.ir_types import BindingNode, effect
from symalloc.relax.passes.pipeline import finishing_pipeline
from symalloc.relax.passes.stages import passes_run_by
from symalloc.relax.rewrite import map_bindings
from symalloc.relax.run.inputs import Argument, ObjectArgument, ShapeArgument, forward, with_sequences
from symalloc.relax.run.memory_cfg import memory_cfg
from symalloc.relax.tvm_error import error_text, run_error


def machines(
    lowered: tvm.IRModule,
    memory: InstrumentedPool | str,
    *,
    target: str,
    pipeline: PipelineName,
    count: int = 1,
) -> list[relax.VirtualMachine]:
    """So many machines on `memory`, a pool or the name of an allocator of TVM's; raises RunError.

    `lowered` is as CallTIRRewrite, or a planner, leaves it.  For a pool, what is allocated is named.
    """
    given: str | dict[object, int] = memory if isinstance(memory, str) else memory_cfg(memory)
    finishing = finishing_pipeline(target, pipeline=pipeline, names=memory is not given)
    logging.getLogger("symalloc").info("building")
    with run_error("TVM cannot build the module"):
        built = relax.build(lowered, target, relax_pipeline=finishing)
        return [relax.VirtualMachine(built, tvm.cpu(), memory_cfg=given) for _ in range(count)]


def planned_by_tvm(lowered: tvm.IRModule) -> tvm.IRModule:
    """`lowered` behind StaticPlanBlockMemory; raises RunError."""
    with run_error("StaticPlanBlockMemory fails"), passes_run_by(None):
        planned = transform.StaticPlanBlockMemory()(lowered)
    with run_error("StaticPlanBlockMemory puts a tensor where another branch of an If makes memory"):
        relax.analysis.well_formed(planned, check_ty=False)
    return planned


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """The outputs of a call, the arguments behind it, and how long it took."""

    outputs: tuple[np.ndarray, ...]
    arguments: tuple[np.ndarray, ...]
    seconds: float

    def arrays(self, but: Collection[int] = ()) -> dict[str, np.ndarray]:
        """The outputs, and the arguments less those at the positions `but`, by what they are called."""
        outputs = {f"output {index}": array for index, array in enumerate(self.outputs)}
        arguments = enumerate(self.arguments)
        return outputs | {f"argument {index}": array for index, array in arguments if index not in but}


def call(
    machine: relax.VirtualMachine,
    function: str,
    arguments: Sequence[Argument],
    around: AbstractContextManager[object] | None = None,
    memory: Sequence[object] = (),
) -> CallResult:
    """One call on fresh copies of `arguments`, which the function may write, and on `memory` that it takes
    behind them; it alone runs within `around`.

    Raises RefusedError for what a pool refuses, RunError for all else that fails.
    """
    with run_error(f"TVM cannot take the arguments of `{function}`"):
        taking = _Taking(machine)
        passed = [taking(a) for a in arguments]
    try:
        with forward(taking.states), around or nullcontext():
            started = perf_counter()
            result = machine[function](*passed, *memory)
            seconds = perf_counter() - started
    except RunError:
        raise
    except PoolError as error:
        raise RefusedError(str(error)) from None
    except Exception as error:  # a kernel, a guard, a packed function
        raise RunError(f"`{function}` fails when it runs: {error_text(error)}") from None
    return CallResult(outputs=tuple(_arrays(result)), arguments=tuple(_arrays(passed)), seconds=seconds)


@contextmanager
def clocked(machine: relax.VirtualMachine, seconds: dict[str, list[float]]) -> Iterator[None]:
    """Notes the seconds of each call that `machine` makes within, by name; not those of its own builtins."""
    begun: list[float] = []

    def note(_: object, name: str, before: bool, *__: object) -> int:
        now = perf_counter()
        if before:
            begun.append(now)
        elif begun and not name.startswith("vm.builtin."):
            seconds.setdefault(name, []).append(now - begun[-1])
        del begun[len(begun) - (not before) :]
        return 0  # TVM's VMInstrumentReturnKind: go on

    machine.set_instrument(note)
    try:
        yield
    finally:
        machine.set_instrument(lambda *_: 0)


# a class: an inner function that calls itself is a cycle, and would keep the machine until it is collected
class _Taking:
    """Makes values of TVM's of the arguments of one call; `states` are the objects among them.

    What hands back several objects at once is called once.
    """

    def __init__(self, machine: relax.VirtualMachine) -> None:
        self._machine = machine
        self._made: dict[str, object] = {}
        self.states: list[tuple[object, tuple[int, ...]]] = []

    def __call__(self, argument: Argument) -> object:
        if isinstance(argument, ShapeArgument):
            return tvm.runtime.ShapeTuple(argument)
        if isinstance(argument, ObjectArgument):
            found = with_sequences(self._object(argument), argument.lengths)
            self.states.append((found, argument.lengths))
            return found
        if isinstance(argument, tuple):
            return tuple(map(self, argument))
        return tvm.runtime.tensor(argument) if isinstance(argument, np.ndarray) else argument

    def _object(self, argument: ObjectArgument) -> object:
        made: Any = self._made.get(argument.maker) if argument.path else None
        if made is None:
            made = self._machine[argument.maker](*map(self, argument.arguments))
            self._made[argument.maker] = made
        for index in argument.path:
            made = made[index]
        return made


def _arrays(value: object) -> list[np.ndarray]:
    """The tensors (and shapes, as arrays) in a result, depth first."""
    if isinstance(value, tvm.runtime.Tensor):
        return [value.numpy()]
    if isinstance(value, tvm.runtime.ShapeTuple):
        return [np.array(list(value), dtype="int64")]
    if isinstance(value, int | float):
        return [np.array(value)]
    try:
        items = list(value)  # type: ignore[call-overload]
    except TypeError:
        return []  # an object that holds no numbers
    return [array for item in items for array in _arrays(item)]


def changed(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | str:
    """The elements that differ in bits, as a flat array of truth values for each array; for arrays that are
    not of the same kind what is different, in words.
    """
    if ours.keys() != theirs.keys():
        return f"{len(ours)} outputs and arguments against {len(theirs)} of the unplanned module"
    found: dict[str, np.ndarray] = {}
    for name, a in ours.items():
        b = theirs[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{name} is {a.dtype}{a.shape}; the unplanned module gives {b.dtype}{b.shape}"
        shape = a.size, a.dtype.itemsize
        left, right = (np.frombuffer(x.tobytes(), dtype=np.uint8).reshape(shape) for x in (a, b))
        found[name] = (left != right).any(axis=1)
    return found


# -- memory that nothing has written -----------------------------------------------------------------------

# Two runs that differ only in what new tensors hold give other results where a kernel reads what nothing has
# written: a maximum over no elements, a result that is left unwritten in part.


Filling: TypeAlias = Literal[0, 1]

_FUNCTION = "symalloc.run.fill"
_ALLOCATION = "relax.builtin.alloc_tensor"
_FLOATS = (0.75, -24.25)  # either sign, so that neither a maximum nor a rectifier hides them
_BYTES = (0x3F, 0xC1)  # of element types that NumPy has not: numbers as well


def filled(lowered: tvm.IRModule, filling: Filling) -> tvm.IRModule:
    """`lowered`, as CallTIRRewrite leaves it, with each new tensor filled with the same number at once."""
    tvm.register_global_func(_FUNCTION, _fill, override=True)

    def with_filling(_: str, binding: BindingNode) -> list[relax.Binding] | None:
        if not isinstance(binding.value, Call) or getattr(binding.value.op, "name", None) != _ALLOCATION:
            return None
        return [binding, effect(relax.ExternFunc(_FUNCTION), [binding.var, relax.prim_value(filling)])]

    return map_bindings(lowered, with_filling)


def _fill(tensor: tvm.runtime.Tensor, filling: int) -> None:
    """Integers become 0 or 1, which are in range wherever they are indices."""
    dtype = str(tensor.dtype)
    kind = tvm.DataType(dtype)
    nbytes = tensor.numel() * ((kind.bits * kind.lanes + 7) // 8)
    if not nbytes:
        return
    memory = (ctypes.c_char * nbytes).from_address(tensor.data_ptr())
    try:
        elements = np.frombuffer(memory, dtype=np.dtype(dtype))
    except TypeError:
        np.frombuffer(memory, dtype=np.uint8)[:] = _BYTES[filling]
        return
    elements[:] = _FLOATS[filling] if elements.dtype.kind in "fc" else filling
