"""The package for C++: what its headers promise.  tests/examples/test_serving.py builds a program with it."""

from __future__ import annotations

import ctypes
import re
import shutil
import sys
from pathlib import Path

import pytest
import tvm.libinfo
import tvm_ffi.libinfo

import symalloc
from examples.serving import make_model
from symalloc.errors import SymallocError
from symalloc.native import library
from tests.pool.library import ROOT
from tests.pool.processes import ran
from tests.test_docs import blocks

PROGRAM = Path(__file__).with_name("public_header.cc")


def test_the_library_exports_what_the_header_declares() -> None:
    text = (library.installed_library().parent / "include" / "symalloc" / "c_api.h").read_text()
    declared = re.findall(r"^SYMALLOC_API \w+ (\w+)\(", text, re.MULTILINE)
    assert len(declared) == text.count("\nSYMALLOC_API ") == 14
    exported = ctypes.CDLL(str(library.installed_library()))
    assert [name for name in declared if not hasattr(exported, name)] == []


def test_without_the_library_there_is_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "find_spec", lambda _: None)
    with pytest.raises(SymallocError, match="the native library is not installed"):
        symalloc.cmake_dir()


_NO_RUNTIME = """
import sys, tvm_ffi
sys.modules["tvm"] = None
from symalloc.native.library import load_library
load_library(*sys.argv[1:])
create = tvm_ffi.get_global_func("symalloc.pool.create")
pool = create(11, 10, -1, 65536, 65536, 2097152, 0, True, False, 0, 0.0)
try:
    tvm_ffi.get_global_func("symalloc.pool.vm_type")(pool)
except Exception as error:
    print(error)
"""


def test_without_tvms_runtime_the_pool_says_so() -> None:
    status, out, err = ran(sys.executable, "-c", _NO_RUNTIME, library.installed_library(), cwd=ROOT)
    assert status == 0 and "TVM's runtime is not in this process" in out, err


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ compiles the program")
def test_the_headers_keep_their_promises_and_the_documented_program_runs(tmp_path: Path) -> None:
    """Takes 2 s: g++ reads tvm-ffi's headers, and a model is built."""
    (documented,) = blocks("cpp")
    (tmp_path / "documented.h").write_text(documented.text)
    make_model.write(str(tmp_path / "model.so"))
    libraries = [Path(tvm.libinfo.find_libtvm_runtime()), Path(tvm_ffi.libinfo.find_libtvm_ffi())]
    libraries.append(library.installed_library())
    foreign = (tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path())
    arguments = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    arguments += [f"-I{library.installed_library().parent}/include", f"-I{tmp_path}"]
    arguments += [f"-isystem{folder}" for folder in foreign]
    arguments += ["-Wl,--no-as-needed", *map(str, libraries), *(f"-Wl,-rpath,{f.parent}" for f in libraries)]
    status, _, err = ran("g++", PROGRAM, *arguments, "-o", "program", cwd=tmp_path)
    assert status == 0, err
    status, out, err = ran(tmp_path / "program", cwd=tmp_path)
    # model.so is loaded several times: TVM says so where the system maps it elsewhere
    kept = [line for line in (out + err).splitlines() if not line.startswith("Warning:SystemLib symbol ")]
    assert (status, kept) == (0, ["3584 bytes live"])
