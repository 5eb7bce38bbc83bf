"""Allocators for TVM's virtual machine, compiled when they are first asked for."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import tvm
import tvm_ffi.libinfo
from tvm import libinfo

__all__ = ["ALLOCATOR", "compiler", "load", "load_library"]

ALLOCATOR = 33  # the type under which the library offers it: memory_cfg={device: ALLOCATOR}
_FOLDER = Path(__file__).parents[3] / "build" / "tests"
SOURCE = Path(__file__).with_name("counting_allocator.cc")
_HEADER = Path(__file__).with_name("vm_allocator.h")


def compiler() -> str | None:
    """The C++ compiler, or None where there is none."""
    return shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


def load() -> None:
    """Register the counting allocator; see `load_library`."""
    load_library(SOURCE)


@cache
def load_library(source: Path) -> None:
    """Compile `source` (2 s), unless an earlier run has, and load it: what it registers is known then.

    Raises FileNotFoundError without a C++ compiler, and CalledProcessError where it refuses the source.
    """
    program = compiler()
    if program is None:
        raise FileNotFoundError("no C++ compiler (c++, g++ or clang++) is on the PATH")
    library = _FOLDER / f"{source.stem}-{_stamp(program, source)}.so"
    if not library.exists():
        _compile(program, source, library)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def _stamp(program: str, source: Path) -> str:
    """Tell apart what is compiled from another source, or for another TVM."""
    text = (
        f"{program} {source.read_text()} {_HEADER.read_text()} "
        f"{tvm_ffi.libinfo.find_libtvm_ffi()} {tvm.__version__}"
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _compile(program: str, source: Path, library: Path) -> None:
    libraries = [Path(libinfo.find_libtvm_runtime()), Path(tvm_ffi.libinfo.find_libtvm_ffi())]
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / library.name
        command = [program, "-std=c++17", "-O1", "-shared", "-fPIC", str(source), "-o", str(made)]
        command += [f"-I{tvm_ffi.libinfo.find_include_path()}", f"-I{_HEADER.parent}"]
        subprocess.run([*command, *map(str, libraries)], check=True)
        made.replace(library)
