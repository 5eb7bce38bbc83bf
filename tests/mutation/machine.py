"""What the interpreter's frames share: the machine's state, how a run ends, what reading a tensor shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm

from tests.mutation.kernels import Kernel
from tests.mutation.memory import Region, Stamp, Tensor

__all__ = [
    "KILLED",
    "FailedError",
    "Machine",
    "NotModelledError",
    "StopError",
    "check_at_pointer",
    "check_content",
    "fresh",
    "itemsize",
    "parts",
    "tensors",
]


class NotModelledError(Exception):
    """The module holds something whose effect on memory the interpreter does not know."""


class StopError(Exception):
    """The call ends here with an error that somebody sees: an assertion, a match_cast."""


class FailedError(Exception):
    """A fault of the kind `kind`: the call goes no further."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind, self.what = kind, what


class _Killed:
    """What is in a register after a kill."""


KILLED = _Killed()


@dataclass(slots=True)
class Machine:
    """One run: the module, the branches to take next and those taken, faults that do not end it (`noted`)."""

    mod: tvm.IRModule
    branches: Iterator[bool]
    taken: list[bool] = field(default_factory=list)
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    depth: int = 0
    noted: list[FailedError] = field(default_factory=list)

    def choose(self) -> bool:
        """The next of `branches`."""
        self.taken.append(next(self.branches))
        return self.taken[-1]


def fresh(shape: tuple[int, ...], dtype: str) -> Tensor:
    """A tensor in memory of its own, not yet written."""
    tensor = Tensor(Region(0), 0, shape, dtype, itemsize(dtype), Stamp())
    tensor.region.size = tensor.nbytes
    return tensor


def itemsize(dtype: str) -> int:
    """Bytes of one element."""
    kind = tvm.DataType(dtype)
    return (kind.bits * kind.lanes + 7) // 8


def parts(value: Any) -> Iterator[Any]:
    """The leaves of nested tuples."""
    if isinstance(value, tuple):
        for part in value:
            yield from parts(part)
    else:
        yield value


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors among them."""
    return (part for part in parts(value) if isinstance(part, Tensor))


def check_content(tensor: Tensor, reader: str, name: str) -> None:
    """Reading `tensor` must give what was written to it."""
    if tensor.region.strangers(tensor.offset, tensor.end, tensor.stamp):
        kind = "overwritten" if tensor.stamp.ever_written() else "unwritten"
        raise FailedError(kind, f"{reader} reads {name}, which somebody else wrote")
    if tensor.region.holes(tensor.offset, tensor.end):
        raise FailedError("unwritten", f"{reader} reads {name}, which nobody wrote")


def check_at_pointer(tensor: Tensor, reader: str) -> None:
    """What is read at the pointer alone must begin there, and hold what was written to it."""
    if tensor.shift:
        raise FailedError("offset-overlooked", f"{reader} overlooks an offset of {tensor.shift}")
    check_content(tensor, reader, "its condition")
