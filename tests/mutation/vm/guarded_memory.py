"""Memory whose misuse shows: see guarded_memory.cc."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm_ffi

from tests.models.measure.library import load_library

__all__ = [
    "ALLOCATOR",
    "PATTERNS",
    "address",
    "as_bytes",
    "byte_offset",
    "fill_with",
    "guarded_copy",
    "guarded_tensor",
    "load_guarded",
    "overrun",
]

ALLOCATOR = 34  # the type under which the library offers it: memory_cfg={device: ALLOCATOR}
# of floats they make numbers of either sign that are large, and no NaN; neither is the other's square root
PATTERNS = (0x4B, 0xC7)


def load_guarded() -> None:
    """Register the allocator and the functions below; see `load_library`."""
    load_library(Path(__file__).with_name("guarded_memory.cc"))


def fill_with(byte: int) -> None:
    """Fill blocks with numbers whose highest byte is `byte` from now on."""
    _function("fill")(byte)


def guarded_tensor(shape: Sequence[int], dtype: str) -> Any:
    """A tensor in a block of its own, filled with the pattern."""
    return _function("tensor")(tvm_ffi.Shape(list(shape)), dtype)


def guarded_copy(tensor: Any) -> Any:
    """A tensor of the same content in a block of its own."""
    made = guarded_tensor(tensor.shape, str(tensor.dtype))
    as_bytes(made)[:] = as_bytes(tensor)
    return made


def address(tensor: Any) -> int:
    """Where the first element lies."""
    return int(_function("address")(tensor))


def byte_offset(tensor: Any) -> int:
    """How many bytes behind its data pointer the tensor says that it begins."""
    return int(_function("offset")(tensor))


def as_bytes(tensor: Any) -> np.ndarray:
    """The tensor's own memory, as bytes."""
    count = int(_function("bytes")(tensor))
    if not count:
        return np.empty(0, dtype=np.uint8)
    return np.frombuffer((ctypes.c_uint8 * count).from_address(address(tensor)), dtype=np.uint8)


def overrun() -> tuple[int, ...]:
    """The addresses of blocks beside which a byte has changed."""
    return tuple(_function("overrun")())


def _function(name: str) -> Any:
    return tvm_ffi.get_global_func(f"tests.guarded.{name}")
