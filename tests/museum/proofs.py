"""Execution proofs: that the museum's faults are real on the TVM that is installed.

Each runs in a process of its own: some write where they must not, and some crash by design.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

MODULES = Path(__file__).parent / "modules"


def load(name: str) -> tvm.IRModule:
    """The exhibit's module, imported as a user would."""
    spec = importlib.util.spec_from_file_location(name, MODULES / f"{name}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(name)
    imported = importlib.util.module_from_spec(spec)
    sys.modules[name] = imported
    spec.loader.exec_module(imported)
    return imported.Module


def call(name: str, *arguments: Any, function: str = "main") -> Any:
    """The result of the compiled exhibit, or the text of the error that it raises."""
    mod = load(name)
    devices = [tvm.cpu(index) for index in range(max(1, len(mod.global_infos.get("vdevice", []))))]
    machine = relax.VirtualMachine(relax.build(mod, target="llvm"), devices)
    tensors = [tvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments]
    try:
        return machine[function](*tensors)
    except (tvm.error.InternalError, TypeError, ValueError) as error:
        return str(error)


def floats(*shape: int) -> np.ndarray:
    """Ones."""
    return np.ones(shape, dtype=np.float32)


def outgrows(name: str) -> bool:
    """1,024 floats fit the page behind the storage, one more does not."""
    return call(name, floats(1024)).shape == (1024,) and "storage allocation failure" in call(
        name, floats(1025)
    )


def unchecked_cast() -> bool:
    """1,000 floats on 20 bytes, with no error; a page later the allocation objects, the cast never."""
    fits, breaks = (call("match_cast_dropped", floats(n), floats(5)) for n in (1000, 1025))
    return fits.shape == (1000,) and "storage allocation failure" in breaks


def gives(name: str, right: float, wrong: float, *arguments: Any) -> bool:
    """Every element is `wrong`, and none `right`."""
    result = call(name, *arguments).numpy()
    return bool(np.all(result == wrong) and wrong != right)


def neighbour() -> bool:
    """At m = 16 all sixteen stay, at m = 20 four are overwritten."""
    small, large = (call("neighbour_overwritten", floats(m)).numpy() for m in (16, 20))
    return bool(np.all(small == 7) and np.all(large[:4] == 1) and np.all(large[4:] == 7))


def returns_its_argument() -> bool:
    """(x + 1) + 2x is 5 at x = 1; TVM answers 2x + 2x."""
    tvm.register_global_func("test.keep", lambda tensor: tensor, override=True)
    return gives("packed_returns_argument", 5.0, 4.0, floats(4, 8))


def misaligned() -> bool:
    """At n = 16 the offset is 64 and all is right; at n = 17 what the kernel wrote is not in the result."""
    aligned, odd = (call("misaligned_offset", floats(n)).numpy() for n in (16, 17))
    return bool(np.all(aligned == 1) and not np.all(odd == 1))


def wraps() -> bool:
    """2**66 elements in memory of 0 bytes, without an error."""
    cube = call("issue_20269", 2**22)
    return not isinstance(cube, str) and tuple(cube.shape) == (2**22,) * 3


def in_front() -> bool:
    """The row in front of the two that were passed comes back instead of the last one."""
    raw = np.zeros(64 + 16, dtype=np.float32)
    start = -raw.ctypes.data % 64 // 4
    rows = raw[start : start + 48].reshape(3, 16)
    rows[:] = [[5.0], [7.0], [9.0]]
    result = call("take_last_row", tvm_ffi.from_dlpack(rows[1:]))
    return not isinstance(result, str) and bool(np.all(result.numpy() == 5.0))


def other_device() -> bool:
    """The kernel on the second device is handed a tensor on the first."""
    found = call("storage_of_other_device", floats(3, 4))
    return isinstance(found, str) and "Mismatched" in found and "device_id" in found


def overwrites_a_view() -> bool:
    """2x + 1 + 2x is 5, 9, 13 at x = 1, 2, 3; `y` holds 2x + 1 by the time it is added."""
    result = call("inplace_on_view", np.arange(1, 4, dtype=np.float32))
    return [float(one) for one in result.numpy()] == [6.0, 10.0, 14.0]


PROOFS: Mapping[str, Callable[[], bool]] = {
    "issue_17322": lambda: outgrows("issue_17322"),
    "tvm_test_bounded_symbol": lambda: outgrows("tvm_test_bounded_symbol"),
    "declared_upper_bound": lambda: outgrows("declared_upper_bound"),
    "mlc_zero_byte_storage": lambda: (
        "region that is 0bytes" in call("mlc_zero_byte_storage", np.ones(1, np.int32), function="decode")
    ),
    "match_cast_alias": lambda: gives("match_cast_alias", 0.375, 0.25, np.zeros((5, 8), np.float32)),
    "reshape_alias": lambda: gives("reshape_alias", 0.375, 0.25, np.zeros((5, 8), np.float32)),
    "match_cast_dropped": unchecked_cast,
    "packed_returns_argument": returns_its_argument,
    "neighbour_overwritten": neighbour,
    "misaligned_offset": misaligned,
    "issue_20269": wraps,
    "use_after_kill": lambda: "expected Tensor" in call("use_after_kill", floats(4)),
    "take_last_row": in_front,
    "storage_of_other_device": other_device,
    "inplace_on_view": overwrites_a_view,
    "condition_at_offset": lambda: gives("condition_at_offset", 2.0, 0.0, floats(3)),
}
# these do not come back
CRASHES: Mapping[str, Callable[[], object]] = {
    "if_branches_add": lambda: call("if_branches_add", np.array(False), floats(1)),
    "if_branches_reshape": lambda: call("if_branches_reshape", floats(4, 8), np.array(False)),
}
