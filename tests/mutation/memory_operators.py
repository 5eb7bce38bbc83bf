"""The operators that reserve, place, view and kill, on the interpreter's simulated memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tests.mutation.machine import KILLED, FailedError, check_content, fresh, itemsize
from tests.mutation.memory import Region, Stamp, Storage, Tensor

if TYPE_CHECKING:
    from tests.mutation.frame import Frame

__all__ = ["OPERATORS", "reshape", "view"]

_ALIGNMENT = 64


def alloc_storage(frame: Frame, call: Any) -> Storage:
    size = frame.value(call.args[0])
    nbytes = size[0] if isinstance(size, tuple) else size
    if nbytes < 0:
        raise FailedError("negative-size", "a storage of negative size")
    return Storage(Region(nbytes))


def alloc_tensor(frame: Frame, call: Any) -> Tensor:
    storage, offset = frame.use(call.args[0], "alloc_tensor"), frame.value(call.args[1])
    return _place(storage.region, offset, frame.value(call.args[2]), _dtype(call.args[3]), offset)


def _place(region: Region, offset: int, shape: tuple[int, ...], dtype: str, shift: int) -> Tensor:
    if any(extent < 0 for extent in shape):
        raise FailedError("negative-extent", f"an extent of {min(shape)}")
    tensor = Tensor(region, offset, shape, dtype, itemsize(dtype), Stamp(), shift)
    if offset < 0:
        raise FailedError("negative-offset", f"an offset of {offset}")
    if tensor.end > region.size:
        raise FailedError("exceeds", f"{tensor.nbytes} B at {offset} of {region.size} B")
    return tensor


def builtin_alloc(frame: Frame, call: Any) -> Tensor:
    return fresh(frame.value(call.args[0]), _dtype(call.args[1]))


def kill(frame: Frame, call: Any) -> None:
    target = call.args[0]
    if frame.value(target) is KILLED:
        frame.machine.noted.append(FailedError("double-kill", f"{target.name} is killed twice"))
    frame.values[target] = KILLED


def view(frame: Frame, call: Any) -> Tensor:
    """A view of a tensor: its content counts as the source's."""
    source = frame.use(call.args[0], "view")
    given = [None if _is_void(a) else a for a in call.args[1:]]
    shape = source.shape if given[0] is None else frame.value(given[0])
    dtype = source.dtype if given[1] is None else _dtype(given[1])
    offset = 0 if given[2] is None else frame.value(given[2])
    if any(extent < 0 for extent in shape):
        raise FailedError("negative-extent", f"an extent of {min(shape)}")
    start = source.offset + offset
    view = Tensor(
        source.region, start, shape, dtype, itemsize(dtype), Stamp(source.stamp), source.shift + offset
    )
    if offset < 0:
        raise FailedError("negative-offset", f"an offset of {offset}")
    if view.end > source.end:
        raise FailedError("view-exceeds", f"{view.nbytes} B at {offset} of {source.nbytes} B")
    return view


def ensure_zero_offset(frame: Frame, call: Any) -> Tensor:
    source = frame.use(call.args[0], "ensure_zero_offset")
    if source.shift % _ALIGNMENT == 0:
        return Tensor(
            source.region, source.offset, source.shape, source.dtype, source.itemsize, source.stamp, 0
        )
    frame.machine.noted.append(
        FailedError("misaligned", f"a copy, since {source.shift} is no multiple of 64")
    )
    copy = fresh(source.shape, source.dtype)
    if source.stamp.ever_written():
        check_content(source, "ensure_zero_offset", "its source")
        copy.write()
    return copy


def relax_reshape(frame: Frame, call: Any) -> Tensor:
    return reshape(frame.use(call.args[0], "reshape"), frame.value(call.args[1]))


def null_value(frame: Frame, call: Any) -> None:
    return None


def reshape(source: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same tensor with other extents."""
    view = Tensor(
        source.region, source.offset, shape, source.dtype, source.itemsize, source.stamp, source.shift
    )
    if view.nbytes != source.nbytes:
        raise FailedError("reshape", "the number of elements changes")
    return view


def _dtype(operand: Any) -> str:
    return str(operand.value)


def _is_void(operand: Any) -> bool:
    return (type(operand).__name__ == "Tuple" and not operand.fields) or (
        type(operand).__name__ == "Call" and operand.op.name == "relax.null_value"
    )


# by the operator's name; each gets the activation and the call, and returns the call's value
OPERATORS: Mapping[str, Callable[[Frame, Any], Any]] = {
    "relax.memory.alloc_storage": alloc_storage,
    "relax.memory.alloc_tensor": alloc_tensor,
    "relax.builtin.alloc_tensor": builtin_alloc,
    "relax.memory.kill_storage": kill,
    "relax.memory.kill_tensor": kill,
    "relax.vm.kill_object": kill,
    "relax.memory.view": view,
    "relax.memory.ensure_zero_offset": ensure_zero_offset,
    "relax.null_value": null_value,
    "relax.reshape": relax_reshape,
}
