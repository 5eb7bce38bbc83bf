"""Loading the native library, and the stub of its functions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import tvm_ffi
import tvm_ffi.registry

import symalloc.native
from symalloc.native import library, native_functions
from symalloc.native.library import NativeMissingError, load_library
from symalloc.native.native_functions import pool_functions
from tests.pool.library import SOURCES

STUB = Path(symalloc.native.__file__).parent / "native_functions.pyi"
ROOMS = {"pool": "_PoolFunctions", "packer": "_PackerFunctions", "array": "_ArrayFunctions"}
# registered under the same prefix: called by compiled programs alone, and one of Python's
OTHERS = {*("symalloc.pool.alloc_storage", "symalloc.pool.alloc_tensor", "symalloc.pool.deliver_interrupt")}


def test_a_file_that_is_no_library_cannot_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_ffi, "get_global_func", lambda name, allow_missing=False: None)
    file = tmp_path / "libsymalloc.so"
    file.write_text("no library")
    with pytest.raises(NativeMissingError, match=r"^the native library cannot be loaded: "):
        load_library(file)


def test_it_is_no_older_than_its_sources() -> None:
    """Else all tests would be of what was: `pip install -e .` builds it anew."""
    rooms = ("bindings", "include/symalloc", "packer", "pool")
    sources = [SOURCES / "CMakeLists.txt", *(file for room in rooms for file in (SOURCES / room).iterdir())]
    built = library.installed_library().stat().st_mtime
    assert [file.name for file in sources if file.stat().st_mtime > built] == []


def test_a_second_copy_is_not_loaded(tmp_path: Path) -> None:
    load_library()
    with pytest.raises(NativeMissingError, match=r"^another copy of the native library is loaded"):
        load_library(tmp_path / "libsymalloc.so")


def test_an_install_without_the_library_gets_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "find_spec", lambda _: None)
    monkeypatch.setattr(tvm_ffi, "get_global_func", lambda name, allow_missing=False: None)
    monkeypatch.setattr(native_functions, "load_library", load_library.__wrapped__)
    for function in ("pool.create", "packer.graph"):
        with pytest.raises(NativeMissingError, match="the native library is not installed"):
            native_functions._Functions("symalloc.").__getattr__(function)


def test_the_stub_has_all_functions_of_the_library() -> None:
    load_library()
    classes = [node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ClassDef)]
    stubbed = {
        f"symalloc.{room}.{function.name}"
        for room, name in ROOMS.items()
        for each in classes
        if each.name == name
        for function in each.body
        if isinstance(function, ast.FunctionDef)
    }
    names = tvm_ffi.registry.list_global_func_names()
    prefixes = tuple(f"symalloc.{room}." for room in ROOMS)
    registered = {n for n in names if n.startswith(prefixes) and n.count(".") == 2}
    assert registered - OTHERS == stubbed


def test_a_function_that_the_library_lacks_is_no_attribute() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        pool_functions.nonsense  # noqa: B018
