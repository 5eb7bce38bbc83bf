"""The memory of a target's devices: what its runtime can do with the place of a tensor.

TVM does not tell: SupportsDevicePointerArithmeticsOnHost can be asked of a device only, and not from Python.
What is not known to hold for a device is taken not to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm.target import Target
from tvm_ffi import DLDeviceType

from symalloc.errors import RunError
from symalloc.planner.planner_options import Flavour

_ADDRESSES = frozenset({DLDeviceType.kDLCPU, DLDeviceType.kDLCUDA, DLDeviceType.kDLCUDAHost})
_BINDS_WHOLE = frozenset({DLDeviceType.kDLWebGPU})


class DeviceMemoryError(RunError):
    """A plan that the target's kernels could not run: its flavour, or the memory that it is for."""


tvm_ffi.register_error(DeviceMemoryError)  # or it leaves TVM's pass runner as a RuntimeError


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """The memory of the devices of one module.

    `addresses`: the host may add an offset to a data pointer, so that R.memory.ensure_zero_offset copies
    nothing at multiples of 64 B; where it may not, data is a handle and that operator copies the tensor.
    `shared`: one kernel may read and write tensors that lie in the same storage.
    """

    addresses: bool = True
    shared: bool = True

    def flavour(self, wanted: Flavour) -> Flavour:
        """The flavour that stands for "auto"; raises DeviceMemoryError where `wanted` cannot be run."""
        if not self.shared and wanted == "arena":
            raise DeviceMemoryError(
                "a kernel of this target cannot read and write tensors of the same storage, as those of one "
                "arena are: WebGPU binds whole buffers; choose the flavour storages, or auto"
            )
        if wanted == "auto":
            return "arena" if self.shared else "storages"
        return wanted


def device_memory(module: tvm.IRModule, target: Target | None) -> DeviceMemory:
    """The memory of `target` (the CPU where it is None) and of each device that `module` names.

    Raises DeviceMemoryError for textures: their rows are not as long as their extents say.
    """
    for device in module.global_infos.get("vdevice", ()):
        if "texture" in str(device.memory_scope):
            why = "a texture is no stretch of bytes; only TVM's own planner knows how much it takes"
            raise DeviceMemoryError(f"tensors in {device.memory_scope} cannot be planned: {why}")
    kinds = frozenset(int(each.get_target_device_type()) for each in _targets(module, target))
    return DeviceMemory(addresses=kinds <= _ADDRESSES, shared=kinds.isdisjoint(_BINDS_WHOLE))


def _targets(module: tvm.IRModule, target: Target | None) -> Iterator[Target]:
    if target is not None:
        yield target
    for device in module.global_infos.get("vdevice", ()):
        yield device.target
