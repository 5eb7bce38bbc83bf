"""Kernels compiled once in a process, not optimised: most of a test that runs a module is LLVM's work.

Many tests build a module in several ways, whose kernels are the same.  The nightly run compiles everything.
"""

from __future__ import annotations

import sys
from typing import Any

Key = tuple[int, str]


def compile_kernels_once() -> None:
    """Have TVM keep what it makes of each module of kernels."""
    import tvm  # noqa: F401

    build = sys.modules["tvm.tirx.build"]
    compiled = _Compiled(build.codegen_build)  # type: ignore[attr-defined]
    build.codegen_build = compiled.build  # type: ignore[attr-defined]


class _Compiled:
    """The modules compiled so far."""

    def __init__(self, compile_module: Any) -> None:
        self._compile = compile_module
        self._found: dict[Key, list[tuple[Any, Any]]] = {}

    def build(self, mod: Any, target: Any) -> Any:
        """Return the runtime module of `mod`."""
        import tvm_ffi

        key = tvm_ffi.structural_hash(mod, map_free_vars=True), str(target)
        known = self._found.setdefault(key, [])
        for other, runtime in known:
            if tvm_ffi.structural_equal(mod, other, map_free_vars=True):
                return runtime
        runtime = self._compile(mod, _unoptimised(target))
        known.append((mod, runtime))
        return runtime


def _unoptimised(target: Any) -> Any:
    import tvm

    if target.kind.name != "llvm" or "opt-level" in target.attrs:
        return target
    return tvm.target.Target({**target.export(), "opt-level": 0})
