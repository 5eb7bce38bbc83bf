"""Loading the native library, the stub of its functions, and doing without it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import tvm_ffi.registry

import symalloc.native
from symalloc.native.functions import pool_functions
from symalloc.native.library import load_library
from tests.pool.library import need_native

STUB = Path(symalloc.native.__file__).parent / "functions.pyi"
# registered under the same prefix, but called by compiled programs alone
OF_PROGRAMS = {"symalloc.pool.alloc_storage", "symalloc.pool.alloc_tensor", "symalloc.pool.take"}
WITHOUT = """
import sys
from symalloc.native import library
library.installed_library = lambda: None
import symalloc
from symalloc.pool.core.pool_errors import NativeMissingError
from symalloc.planner.exact.static_problem import StaticBuffer
from symalloc.planner.exact.solve import pack_exactly
try:
    symalloc.Pool()
except NativeMissingError as error:
    print(error)
sizes = (4, 5, 6, 3, 2, 7)
buffers = [StaticBuffer(id=i, size=size, live=((i, i + 3),)) for i, size in enumerate(sizes)]
near = {i: frozenset(j for j in range(6) if j != i and abs(i - j) < 3) for i in range(6)}
print(pack_exactly(buffers, near, capacity=None, seconds=20).optimal)
"""


def test_a_file_that_is_no_library_cannot_be_loaded(tmp_path: Path) -> None:
    file = tmp_path / "libsymalloc.so"
    file.write_text("no library")
    reason = load_library(file)
    assert reason is not None
    assert reason.startswith("the native library cannot be loaded: ")


def test_without_the_library_the_pool_says_so_and_the_packer_searches_in_python() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    said, optimal = done.stdout.splitlines()
    assert said.startswith("the native library is not installed")
    assert optimal == "True"


def test_the_stub_has_all_functions_of_the_library() -> None:
    need_native()
    classes = [node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ClassDef)]
    stubbed = {
        f"symalloc.{room}.{function.name}"
        for room, name in (("pool", "_PoolFunctions"), ("packer", "_PackerFunctions"))
        for each in classes
        if each.name == name
        for function in each.body
        if isinstance(function, ast.FunctionDef)
    }
    names = tvm_ffi.registry.list_global_func_names()
    registered = {
        n for n in names if n.startswith(("symalloc.pool.", "symalloc.packer.")) and n.count(".") == 2
    }
    assert registered - OF_PROGRAMS == stubbed


def test_a_function_that_the_library_lacks_is_no_attribute() -> None:
    need_native()
    with pytest.raises(ValueError, match="nonsense"):
        pool_functions.nonsense  # noqa: B018
