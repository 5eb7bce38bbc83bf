"""Finding and loading libsymalloc.so, which registers its functions with tvm-ffi.  symalloc needs it."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path

from symalloc.errors import SymallocError

LIBRARY = "libsymalloc.so"
_TVM = ("tvm_ffi", "tvm")
CMAKE_FILES = Path("share", "cmake", "symalloc")  # beside the library


class NativeMissingError(SymallocError, ImportError):
    """The native library is not installed, or cannot be loaded."""


class _NoTorchForTVM(MetaPathFinder):
    """Hides torch from TVM, while that is imported."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Return None: others find what is not hidden."""
        begun = (getattr(sys.modules.get(each), "__spec__", None) for each in _TVM)
        if name == "torch" and any(getattr(spec, "_initializing", False) for spec in begun):
            raise ModuleNotFoundError("TVM needs no torch", name=name)


@cache
def leave_torch_out() -> None:
    """In this process TVM does not import torch from now on, as it does first where there is one.

    It takes longer than all of TVM; who reads a model of torch imports it then.
    """
    sys.meta_path.insert(0, _NoTorchForTVM())


def installed_library() -> Path:
    """Return the path of the library in the installed package; raises NativeMissingError."""
    spec = find_spec("symalloc.native")
    folders = spec.submodule_search_locations if spec is not None else None
    found = next((f for folder in folders or () if (f := Path(folder) / LIBRARY).exists()), None)
    if found is None:
        raise NativeMissingError("the native library is not installed: install symalloc with a C++ compiler")
    return found


def cmake_dir() -> Path:
    """Return the folder of symalloc-config.cmake, for `find_package(symalloc CONFIG)`.

    Raises NativeMissingError.
    """
    return installed_library().parent / CMAKE_FILES


@cache
def load_library(path: Path | None = None) -> None:
    """Load the library at `path`, by default the installed one; raises NativeMissingError.

    Two copies in one process would end it: both register the same types.
    """
    import tvm_ffi  # which brings the library that ours is linked to

    if tvm_ffi.get_global_func("symalloc.pool.create", allow_missing=True) is not None:
        if path is not None:
            raise NativeMissingError(f"another copy of the native library is loaded, so {path} is not")
        return
    try:
        ctypes.CDLL(str(path or installed_library()), ctypes.RTLD_LOCAL)
    except OSError as error:
        raise NativeMissingError(f"the native library cannot be loaded: {error}") from None
