"""The counting allocator: compiled from counting_allocator.cc and loaded into this process."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import tvm_ffi.libinfo
from tvm import libinfo

__all__ = ["ALLOCATOR", "compiler", "load"]

ALLOCATOR = 33  # the type under which the library offers it: memory_cfg={device: ALLOCATOR}
SOURCE = Path(__file__).with_name("counting_allocator.cc")


def compiler() -> str | None:
    """The C++ compiler, or None where there is none."""
    return shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


@cache
def load() -> None:
    """Compile the library (3 s) and register the allocator, once in a process.

    Raises FileNotFoundError without a C++ compiler, and CalledProcessError where it refuses the source.
    """
    program = compiler()
    if program is None:
        raise FileNotFoundError("no C++ compiler (c++, g++ or clang++) is on the PATH")
    libraries = [Path(libinfo.find_libtvm_runtime()), Path(tvm_ffi.libinfo.find_libtvm_ffi())]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libcounting_allocator.so"
        command = [program, "-std=c++17", "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(library)]
        command.append(f"-I{tvm_ffi.libinfo.find_include_path()}")
        subprocess.run([*command, *map(str, libraries)], check=True)
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
