"""An instrument of the virtual machine that follows who wrote what, by running every kernel on copies.

It sees what the results may hide: a kernel whose output depends on memory that nobody has written, or that
somebody else has written since, and one that writes beside its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from tests.models.execution import tensors_in
from tests.mutation.vm.exact_builtins import itemsize
from tests.mutation.vm.guarded_memory import address, as_bytes, byte_offset
from tests.mutation.vm.kernel_isolation import Isolated, causes_of, run_isolated
from tests.mutation.vm.shadow_memory import ShadowMemory, ShadowTensor

__all__ = ["Trace"]

_SKIP = 1  # VMInstrumentReturnKind::kSkipRun
_STORAGE, _TENSOR, _HEAP = (f"vm.builtin.alloc_{kind}" for kind in ("storage", "tensor", "shape_heap"))
_DYNAMIC = "vm.builtin.call_tir_dyn"
# what hands tensors on, or reads only their shapes
_HANDLES = frozenset(
    {"runtime.TVMTensorCreateView", "vm.builtin.ensure_zero_offset"}
    | {
        f"vm.builtin.{name}"
        for name in (
            *("check_tensor_info", "check_shape_info", "check_tuple_info", "check_prim_value_info"),
            *("match_shape", "match_prim_value", "make_shape", "reshape", "copy", "shape_of", "null_value"),
            *("make_tuple", "tuple_getitem", "tuple_reset_item", "make_closure", "invoke_closure"),
            *("check_func_info", "make_prim_value", "alloc_storage", "alloc_tensor", "alloc_shape_heap"),
        )
    }
)


@dataclass(slots=True)
class Trace:
    """One call.  `kernels`: the names of the PrimFuncs.  `entering` is told what is about to run."""

    kernels: Collection[str]
    functions: Collection[str]
    entering: Callable[[str], None]
    memory: ShadowMemory = field(default_factory=ShadowMemory)
    faults: dict[str, str] = field(default_factory=dict)  # kind to text, the first of each
    heaps: list[Any] = field(default_factory=list)
    entered: set[str] = field(default_factory=set)  # of `functions`

    def __call__(self, function: Any, name: str, before: bool, result: Any, *arguments: Any) -> int:
        if before:
            return self._before(function, name, arguments)
        self._after(name, result, arguments)
        return 0

    def _before(self, function: Any, name: str, arguments: Sequence[Any]) -> int:
        if name in self.functions:
            self.entered.add(name)
        if name in _HANDLES or name in self.functions or self._computes_size(arguments):
            return 0
        if name == _DYNAMIC:
            function, *arguments = arguments
        if name in self.kernels or name == _DYNAMIC:
            self._begins_in_an_element(name, arguments)
            self._run(function, name, arguments, copied=True)
            return _SKIP
        self._run(function, name, arguments, copied=False)
        return 0

    def _begins_in_an_element(self, name: str, arguments: Sequence[Any]) -> None:
        """Note an argument that a kernel takes for one that begins earlier: it counts whole elements."""
        for tensor in tensors_in(list(arguments)):
            offset = byte_offset(tensor) if len(as_bytes(tensor)) else 0
            if offset % itemsize(tensor.dtype):
                self.note("split-element", f"{name} gets a tensor at byte {offset}")

    def _computes_size(self, arguments: Sequence[Any]) -> bool:
        """Whether a call has no tensor of the program's: the machine's table of sizes is none."""
        tensors = [t for t in tensors_in(list(arguments)) if not any(t.same_as(h) for h in self.heaps)]
        return not tensors

    def _after(self, name: str, result: Any, arguments: Sequence[Any]) -> None:
        if name == _HEAP:
            self.heaps.append(result)
        elif name == _STORAGE:
            self._reserved(result, arguments)
        elif name == _TENSOR:
            self.memory.place(result)
        elif name not in self.functions:
            sources = list(tensors_in(list(arguments)))
            for tensor in tensors_in(result):
                self.memory.of(tensor, sources)
            if name == "vm.builtin.reshape" and len(as_bytes(result)) != len(as_bytes(arguments[0])):
                self.note("reshape", f"{list(arguments[0].shape)} -> {list(result.shape)}")

    def _reserved(self, storage: Any, arguments: Sequence[Any]) -> None:
        nbytes = prod(arguments[1]) * itemsize(arguments[3])
        whole = tvm_ffi.get_global_func(_TENSOR)(storage, 0, tvm_ffi.Shape([nbytes]), "uint8")
        self.memory.reserve([storage, whole], address(whole), nbytes)

    def _run(self, function: Any, name: str, arguments: Sequence[Any], *, copied: bool) -> None:
        """Run a kernel on copies and bring back what it wrote, or try what else may read its arguments."""
        tensors = [self.memory.of(a) for a in arguments if isinstance(a, tvm.runtime.Tensor)]
        masks = [self.memory.foreign(t) for t in tensors]
        nothing = not any(mask.any() for mask in masks)
        if not copied and (nothing or any(isinstance(a, list | tuple) for a in arguments)):
            return
        self.entering(name)
        done = run_isolated(function, arguments, masks)
        if done.overrun:
            self.note("out-of-bounds", f"{name} writes beside its arguments")
        if done.depends:
            beside, causes = causes_of(function, arguments, masks)
            if beside or not any(causes):
                self.note("out-of-bounds", f"{name} reads beside its arguments")
            for tensor, mask, cause in zip(tensors, masks, causes, strict=True):
                if cause:
                    shape = list(tensor.tensor.shape)
                    self._depends(tensor, mask, f"{name} depends on it: a tensor of shape {shape}")
        self.entering("")
        self._bring_back(tensors, masks, done, copied=copied)

    def _depends(self, tensor: ShadowTensor, foreign: np.ndarray, text: str) -> None:
        self.note("overwritten" if self.memory.was_written(tensor, foreign) else "unwritten", text)

    def _bring_back(
        self, tensors: Sequence[ShadowTensor], masks: Sequence[np.ndarray], done: Isolated, *, copied: bool
    ) -> None:
        for tensor, mask, content, written in zip(tensors, masks, done.contents, done.written, strict=True):
            if copied and written.any():
                rows = as_bytes(tensor.tensor).reshape(len(mask), -1)
                rows[written] = content.reshape(len(mask), -1)[written]
            self.memory.write(tensor, written)

    def finish(self, result: Any) -> None:
        """What the caller gets must be what the program has put there."""
        for index, tensor in enumerate(tensors_in(result)):
            shadow = self.memory.of(tensor)
            foreign = self.memory.foreign(shadow)
            if foreign.any():
                self._depends(shadow, foreign, f"result {index}")

    def note(self, kind: str, text: str) -> None:
        """A fault; the first of its kind is kept."""
        self.faults.setdefault(kind, text)
