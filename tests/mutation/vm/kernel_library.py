"""Executables whose kernels are compiled once for a model, not for each of its mutants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.vm_build import _vmcodegen, _vmlink

from tests.mutation.kernels import kernels_of

__all__ = ["KernelLibrary"]

# LLVM takes most of the time otherwise
_TARGET = tvm.target.Target({"kind": "llvm", "opt-level": 0})


class KernelLibrary:
    """The compiled kernels of one finished module; other modules take from it what they have unchanged."""

    def __init__(self, finished: tvm.IRModule) -> None:
        self._known = kernels_of(finished)
        self._compiled = _compile(self._known) if self._known else None
        for name in self._known:  # machine code is made when a function is first asked for
            self._compiled[name]

    def link(self, finished: tvm.IRModule) -> Any:
        """An executable of `finished`, a module behind all passes of the pipeline."""
        kernels = kernels_of(finished)
        fresh = {name: kernel for name, kernel in kernels.items() if not self._has(name, kernel)}
        libraries = [_compile(fresh)] if fresh else []
        if self._compiled is not None:
            libraries.append(self._compiled)
        program = {
            name: function
            for name, function in finished.functions_items()
            if not isinstance(function, tvm.tirx.PrimFunc)
        }
        builder = relax.ExecBuilder()
        _vmcodegen(builder, tvm.IRModule(program, attrs=finished.attrs))
        return _vmlink(builder, _TARGET, None, ext_libs=libraries)

    def _has(self, name: str, kernel: Any) -> bool:
        known = self._known.get(name)
        if known is None:
            return False
        return bool(known.same_as(kernel) or tvm_ffi.structural_equal(known, kernel, map_free_vars=True))


def _compile(kernels: Mapping[str, Any]) -> Any:
    return tvm.tirx.build(tvm.IRModule(dict(kernels)), target=_TARGET)
