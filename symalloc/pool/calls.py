"""Calling the native core by the names of its functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import tvm_ffi

__all__ = ["native_function", "native_function_or_none"]

PREFIX = "symalloc.pool."


@cache
def native_function(name: str) -> Callable[..., Any]:
    """The function of that name, the core being loaded."""
    function: Callable[..., Any] = tvm_ffi.get_global_func(PREFIX + name)
    return function


def native_function_or_none(name: str) -> Callable[..., Any] | None:
    """The same, or None where the core is not loaded."""
    function: Callable[..., Any] | None = tvm_ffi.get_global_func(PREFIX + name, allow_missing=True)
    return function
