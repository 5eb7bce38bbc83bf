"""The floor of a call: the most bytes that its tensors need at one moment, as it ran.

It is taken from a run of the module in which every tensor has a storage of its own.  The machine reports
every call that it makes, with its arguments; a tensor is needed from where it is allocated to the last call
that it, or another tensor on its memory, is handed to.  A caller's tensors are needed until the callee
returns, outputs to the end of the call.  Of calls that Ifs send different ways, what one needs later is
needed by the other until the If that parts them.  Sizes are rounded up to 64 bytes, and devices are added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, permutations
from typing import Any

import tvm
from tvm import relax

from tests.models.execution import tensors_in

__all__ = ["Floor", "floor", "floors"]

_ALIGNMENT = 64
_ALLOCATION = "vm.builtin.alloc_tensor"
_CONDITION = "vm.builtin.read_if_cond"
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
    outputs: set[_Block] = field(default_factory=set)
    ways: list[tuple[int, bool]] = field(default_factory=list)  # of each If: when it was known, and which
    time: int = 0

    def __call__(self, _function: Any, name: str, before: bool, result: Any, *arguments: Any) -> None:
        self.time += 1
        if name == _ALLOCATION:
            if not before:
                self.allocated(result)
        elif name not in _HANDLES:
            if name == _CONDITION and not before:
                self.ways.append((self.time, bool(result)))
            for block in self.among(arguments):
                block.end = self.time

    def returned(self, value: Any) -> None:
        """The call gives back `value`."""
        self.outputs = set(self.among(value))
        for block in self.outputs:
            block.end = self.time + 1

    def parting(self, other: _Trace) -> int | None:
        """When an If sent this call another way than `other`; None where none did."""
        return next(
            (time for (time, way), (_, theirs) in zip(self.ways, other.ways, strict=False) if way != theirs),
            None,
        )

    def floor(self) -> Floor:
        """What is needed at least."""
        return Floor(
            planned=_on_all_devices([b for b in self.blocks if b not in self.outputs]),
            total=_on_all_devices(self.blocks),
        )

    def allocated(self, tensor: tvm.runtime.Tensor) -> None:
        rounded = -(-_nbytes(tensor) // _ALIGNMENT) * _ALIGNMENT
        block = _Block(tensor.device.index, rounded, self.time, self.time)
        self.here[tensor.data_ptr()] = block
        self.blocks.append(block)

    def among(self, value: Any) -> Iterator[_Block]:
        for tensor in tensors_in(value):
            block = self.here.get(tensor.data_ptr())
            if block is not None:
                yield block


def floor(machine: relax.VirtualMachine, function: str, arguments: list[Any]) -> Floor:
    """The floors of `function` at `arguments`; `machine` runs the unplanned module, and is left with no
    instrument.
    """
    return floors(machine, function, [arguments])[0]


def floors(machine: relax.VirtualMachine, function: str, calls: Sequence[list[Any]]) -> list[Floor]:
    """The floors of calls that only Ifs tell apart, by their arguments; see `floor`."""
    traces = [_traced(machine, function, arguments) for arguments in calls]
    ran = {id(trace): [block.end for block in trace.blocks] for trace in traces}
    for trace, other in permutations(traces, 2):
        known = trace.parting(other)
        for block, end in zip(trace.blocks, ran[id(other)], strict=False):
            if known is not None and block.begin < known < end:
                block.end = max(block.end, known)
    return [trace.floor() for trace in traces]


def _traced(machine: relax.VirtualMachine, function: str, arguments: list[Any]) -> _Trace:
    trace = _Trace()
    machine.set_instrument(trace)
    try:
        trace.returned(machine[function](*arguments))
    finally:
        machine.set_instrument(lambda *_: None)
    return trace


def _on_all_devices(blocks: list[_Block]) -> int:
    return sum(_peak([b for b in blocks if b.device == device]) for device in {b.device for b in blocks})


def _peak(blocks: list[_Block]) -> int:
    """What is taken at a moment counts together with what is given back behind it."""
    changes = sorted([(b.begin, 0, b.nbytes) for b in blocks] + [(b.end, 1, -b.nbytes) for b in blocks])
    return max(accumulate((change for *_, change in changes), initial=0))


def _nbytes(tensor: tvm.runtime.Tensor) -> int:
    kind = tvm.DataType(str(tensor.dtype))
    return tensor.numel() * ((kind.bits * kind.lanes + 7) // 8)
