"""The floor of one call: the most bytes that its tensors need at one moment, as it ran.

It is taken from a run of the module in which every tensor has a storage of its own.  The machine reports
every call that it makes, with its arguments; a tensor is needed from where it is allocated to the last call
that it, or another tensor on its memory, is handed to.  A caller's tensors are needed until the callee
returns, outputs to the end of the call.  Sizes are rounded up to 64 bytes, and devices are added up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

__all__ = ["Floor", "floor"]

_ALIGNMENT = 64
_ALLOCATION = "vm.builtin.alloc_tensor"
# what passes handles on and touches no element
_HANDLES = frozenset(
    f"vm.builtin.{name}"
    for name in (
        "check_tensor_info",
        "match_shape",
        "reshape",
        "make_tuple",
        "tuple_getitem",
        "tuple_reset_item",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """Bytes, by the names that `Usage` has: without outputs, and with them."""

    planned: int
    total: int


@dataclass(eq=False, slots=True)
class _Block:
    device: int
    nbytes: int
    begin: int
    end: int


@dataclass(slots=True)
class _Trace:
    blocks: list[_Block] = field(default_factory=list)
    here: dict[int, _Block] = field(default_factory=dict)  # by address; the latest of that address
    time: int = 0

    def __call__(self, _function: Any, name: str, before: bool, result: Any, *arguments: Any) -> None:
        self.time += 1
        if name == _ALLOCATION:
            if not before:
                self.allocated(result)
        elif name not in _HANDLES:
            for block in self.among(arguments):
                block.end = self.time

    def allocated(self, tensor: tvm.runtime.Tensor) -> None:
        rounded = -(-_nbytes(tensor) // _ALIGNMENT) * _ALIGNMENT
        block = _Block(tensor.device.index, rounded, self.time, self.time)
        self.here[tensor.data_ptr()] = block
        self.blocks.append(block)

    def among(self, value: Any) -> Iterator[_Block]:
        for tensor in _tensors(value):
            block = self.here.get(tensor.data_ptr())
            if block is not None:
                yield block


def floor(machine: relax.VirtualMachine, function: str, arguments: list[Any]) -> Floor:
    """The floors of `function` at `arguments`; `machine` runs the unplanned module, and is left with no
    instrument.
    """
    trace = _Trace()
    machine.set_instrument(trace)
    try:
        outputs = set(trace.among(machine[function](*arguments)))
    finally:
        machine.set_instrument(lambda *_: None)
    for block in outputs:
        block.end = trace.time + 1
    return Floor(
        planned=_on_all_devices([b for b in trace.blocks if b not in outputs]),
        total=_on_all_devices(trace.blocks),
    )


def _on_all_devices(blocks: list[_Block]) -> int:
    return sum(_peak([b for b in blocks if b.device == device]) for device in {b.device for b in blocks})


def _peak(blocks: list[_Block]) -> int:
    """What is taken at a moment counts together with what is given back behind it."""
    changes = sorted([(b.begin, 0, b.nbytes) for b in blocks] + [(b.end, 1, -b.nbytes) for b in blocks])
    return max(accumulate((change for *_, change in changes), initial=0))


def _tensors(value: Any) -> Iterator[tvm.runtime.Tensor]:
    if isinstance(value, tvm.runtime.Tensor):
        yield value
    elif isinstance(value, tuple | list | tvm_ffi.Array):
        for item in value:
            yield from _tensors(item)


def _nbytes(tensor: tvm.runtime.Tensor) -> int:
    kind = tvm.DataType(str(tensor.dtype))
    return tensor.numel() * ((kind.bits * kind.lanes + 7) // 8)
