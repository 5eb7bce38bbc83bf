"""Finding and loading libsymalloc.so, which registers its functions with tvm-ffi.

The library is part of an installed package.  It is missing where there was no C++ compiler when symalloc was
installed; then plans are searched for in Python, and only the native pool cannot be had.  Where it failed to
compile there is no package at all.
"""

from __future__ import annotations

import ctypes
import logging
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from symalloc.errors import SymallocError

LIBRARY = "libsymalloc.so"
CMAKE_FILES = Path("share", "cmake", "symalloc")  # beside the library
MISSING = "the native library is not installed for want of a C++ compiler; reinstall symalloc with one"


def installed_library() -> Path | None:
    """The path of the library in the installed package; None where it is missing."""
    spec = find_spec("symalloc.native")
    folders = spec.submodule_search_locations if spec is not None else None
    return next((f for folder in folders or () if (f := Path(folder) / LIBRARY).exists()), None)


def cmake_dir() -> Path:
    """The folder of symalloc-config.cmake, for `find_package(symalloc CONFIG)`.

    Raises SymallocError where the native library is not installed.
    """
    library = installed_library()
    if library is None:
        raise SymallocError(MISSING)
    return library.parent / CMAKE_FILES


@cache
def has_native(function: str) -> bool:
    """Return whether the library is there and has a function; another copy that was loaded may be older."""
    import tvm_ffi

    return load_library() is None and tvm_ffi.get_global_func(function, allow_missing=True) is not None


@cache
def load_library(path: Path | None = None) -> str | None:
    """Load the library at `path`, by default the installed one; the reason where that fails, else None.

    Two copies in one process would end it: both register the same types.
    """
    import tvm_ffi  # which brings the library that ours is linked to

    if tvm_ffi.get_global_func("symalloc.pool.create", allow_missing=True) is not None:
        return None if path is None else f"another copy of the native library is loaded, so {path} is not"
    file = path or installed_library()
    if file is None:
        logging.getLogger("symalloc").warning("%s; packing is slower, and no pool is there", MISSING)
        return MISSING
    try:
        ctypes.CDLL(str(file), ctypes.RTLD_LOCAL)
    except OSError as error:
        return f"the native library cannot be loaded: {error}"
    return None
