"""Modules run on TVM's virtual machine, on storages that hold a pattern of bytes before they are written.

All of this belongs into a process of its own (`tests.pool.processes.died`): it replaces the builtin that
makes storages, and what runs may crash.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir.instrument import pass_instrument

from tests.models.execution import tensors_in

__all__ = [
    *("PATTERNS", "Array", "Machine", "Shows"),
    *("depends_on_storages", "differs", "fails", "floats", "gives", "old_bytes", "refused"),
]

Array: TypeAlias = np.ndarray[Any, Any]

PATTERNS = (0x55, 0xAA)
"""Two bytes to fill storages with: floats of them are no NaN, no zero, and differ in sign and size."""

_ALLOCATE = "vm.builtin.alloc_storage"


class Machine:
    """A module to be run.

    `planned`: TVM plans its memory when it is built; otherwise every tensor that the module does not place
    itself has a storage of its own.
    """

    def __init__(self, module: tvm.IRModule, *, planned: bool = False) -> None:
        self.module, self.planned = module, planned

    @cached_property
    def executable(self) -> Any:
        """The module built for the CPU."""
        with tvm.transform.PassContext(instruments=[] if self.planned else [_without_planner()]):
            return relax.build(_without_idle_kernels(self.module), target="llvm")

    def prepare(self) -> None:
        """Build and link the module now, for all copies that are made of this process."""
        relax.VirtualMachine(self.executable, tvm.cpu())

    def run(
        self, *arguments: Any, poison: int = PATTERNS[0], function: str = "main", calls: int = 1
    ) -> list[Array]:
        """The tensors of the last of `calls` results, in order; raises what TVM raises.

        `poison` is the byte that new storages are filled with.  Arrays are handed over as tensors with memory
        of their own, the same in all calls; everything else as it is.
        """
        _fill_storages(poison)
        machine = relax.VirtualMachine(self.executable, tvm.cpu())
        values = [tvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments]
        found: list[Array] = []
        for _ in range(calls):
            found = [tensor.numpy() for tensor in tensors_in(machine[function](*values))]
        return found


def gives(machine: Machine, expected: Any, *arguments: Any, **how: Any) -> bool:
    """True if the result is `expected` (an array, or a list of them), whatever storages held before."""
    wanted = expected if isinstance(expected, list) else [expected]
    every = [machine.run(*arguments, poison=poison, **how) for poison in PATTERNS]
    return all(len(found) == len(wanted) and all(map(np.allclose, found, wanted)) for found in every)


def depends_on_storages(machine: Machine, *arguments: Any, **how: Any) -> bool:
    """True if the result depends on what storages held before."""
    every = [machine.run(*arguments, poison=poison, **how) for poison in PATTERNS]
    return any(
        a.tobytes() != b.tobytes() for one, other in pairwise(every) for a, b in zip(one, other, strict=True)
    )


def fails(machine: Machine, words: str, *arguments: Any, **how: Any) -> bool:
    """True if the run ends with an error whose text holds `words`."""
    try:
        machine.run(*arguments, **how)
    except Exception as error:
        return words in str(error)
    return False


Shows: TypeAlias = Callable[[Machine, Machine], bool]
"""Runs a program and its twin, and is True where the fault is seen."""


def differs(meant: Any, given: Any, *arguments: Any) -> Shows:
    """The program does not give `meant`; its twin gives `given`."""
    return lambda bad, twin: not gives(bad, meant, *arguments) and gives(twin, given, *arguments)


def old_bytes(*arguments: Any) -> Shows:
    """The program's result depends on what storages held before, its twin's does not."""
    return lambda bad, twin: (
        depends_on_storages(bad, *arguments) and not depends_on_storages(twin, *arguments)
    )


def refused(words: str, given: Any, *arguments: Any) -> Shows:
    """The program ends with an error whose text holds `words`; its twin gives `given`."""
    return lambda bad, twin: gives(twin, given, *arguments) and fails(bad, words, *arguments)


def floats(*shape: int) -> Array:
    """1, 2, 3, … of type float32."""
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def _without_idle_kernels(module: tvm.IRModule) -> tvm.IRModule:
    """The module less the kernels that nobody calls: compiling is most of the time that a run takes."""
    spoken: set[str] = set()
    for function in module.functions.values():
        tvm_ffi.structural_walk(function, ((tvm.ir.GlobalVar, lambda var: spoken.add(var.name_hint)),))
    kept = {
        var: function
        for var, function in module.functions_items()
        if isinstance(function, relax.Function) or var.name_hint in spoken
    }
    return tvm.IRModule(kept, attrs=module.attrs, global_infos=module.global_infos)


def _without_planner() -> Any:
    @pass_instrument
    class Instrument:
        def should_run(self, _: tvm.IRModule, info: Any) -> bool:
            return bool(info.name != "StaticPlanBlockMemory")

    return Instrument()


class _FilledStorages:
    """The builtin that makes storages, which fills them."""

    def __init__(self) -> None:
        self.byte = PATTERNS[0]
        self._allocate = tvm.get_global_func(_ALLOCATE)
        self._place = tvm.get_global_func("vm.builtin.alloc_tensor")

    def __call__(self, context: Any, size: Any, *rest: Any) -> Any:
        storage = self._allocate(context, size, *rest)
        nbytes = int(np.prod([int(extent) for extent in size]))
        if nbytes:
            tensor = self._place(storage, 0, tvm_ffi.Shape([nbytes]), tvm_ffi.dtype("uint8"))
            ctypes.memset(np.from_dlpack(tensor).ctypes.data, self.byte, nbytes)
        return storage


_filled: list[_FilledStorages] = []


def _fill_storages(byte: int) -> None:
    """Have virtual machines opened from now on fill their storages with `byte`."""
    if not _filled:
        _filled.append(_FilledStorages())
        tvm.register_global_func(_ALLOCATE, _filled[0], override=True)
    _filled[0].byte = byte
