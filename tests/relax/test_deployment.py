"""Planned modules outside of the process that planned them, and as compiled code."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi.libinfo
from tvm import relax

import symalloc
from symalloc.relax.files.plan_file import Form, written
from tests.relax.built import MODULES, bits, rows

_LOAD = """
import os, sys
os.environ["TVM_DEVICE_BACKEND_AUTOLOAD"] = "0"  # else TVM imports symalloc for its entry point
from pathlib import Path
import numpy as np, tvm
from tvm import relax
for path in map(Path, sys.argv[1:]):
    if path.suffix == ".json":
        module = tvm.ir.load_json(path.read_text())
    else:
        lines = path.read_text().splitlines()  # TVM's parser takes its own scripts without their imports
        module = tvm.script.from_source("\\n".join(l for l in lines if not l.startswith("from ")))
    x = np.load(path.with_suffix(".x.npy"))
    machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    np.save(path.with_suffix(".y.npy"), machine["main"](tvm.runtime.tensor(x)).numpy())
assert "symalloc" not in sys.modules
"""
_SAVED: Sequence[tuple[Form, str]] = (("json", "Reshapes"), ("json", "Chain"), ("script", "Chain"))


def test_saved_modules_run_in_another_process_without_symalloc(tmp_path: Path) -> None:
    expected = {}
    for form, name in _SAVED:
        module = getattr(MODULES, name)
        saved = tmp_path / (f"{form}_{name}" + (".json" if form == "json" else ".py"))
        saved.write_text(written(symalloc.plan(module).module, form))
        extents = [11 if isinstance(e, tvm.ir.Var) else int(e) for e in module["main"].params[0].ty.shape]
        x = rows(*extents)
        np.save(saved.with_suffix(".x.npy"), x)
        expected[saved] = bits(relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu()), x)
    subprocess.run([sys.executable, "-c", _LOAD, *map(str, expected)], check=True)
    for saved, result in expected.items():
        assert [np.load(saved.with_suffix(".y.npy")).tobytes()] == result, saved


_BOUNDED = """
@I.ir_module
class Bounded:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 0), "float32")) -> R.Tensor((), "float32"):
        n = T.int64()
        R.assert_op(n <= 4096, [n], format="no more than 4096 rows, not {}")
        y = R.add(x, R.const(1, "float32"))
        return R.sum(R.add(R.exp(y), y))
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ compiles the program")
def test_a_plan_built_by_any_pipeline_is_checked_in_a_program_in_cpp(tmp_path: Path) -> None:
    """Checks of the plan and of the model's author alike; takes 3 s, for g++ reads tvm-ffi's headers."""
    empty, authors = MODULES.FromEmpty, tvm.script.from_source(_BOUNDED)
    target = relax.get_default_pipeline(tvm.target.Target("llvm"))
    built = {
        "default": relax.build(symalloc.plan(empty), "llvm"),
        "target": relax.build(symalloc.plan(empty), "llvm", relax_pipeline=target),
        "cast": relax.build(MODULES.CastEmpty, "llvm", relax_pipeline=symalloc.pipeline("llvm")),
        "native": relax.build(symalloc.plan(empty, guards="native"), "llvm"),
        "authors": relax.build(symalloc.plan(authors), "llvm"),
        "caller": relax.build(symalloc.plan(empty, arena="caller"), "llvm"),
    }
    for name, executable in built.items():
        executable.export_library(str(tmp_path / f"{name}.so"))
    libraries = [Path(tvm.libinfo.find_libtvm_runtime()), Path(tvm_ffi.libinfo.find_libtvm_ffi())]
    foreign = (tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path())
    command = ["g++", "-std=c++17", str(Path(__file__).with_name("runtime_only.cc")), "-o", "program"]
    command += [*(f"-I{folder}" for folder in foreign), "-Wl,--no-as-needed", *map(str, libraries)]
    command += [f"-Wl,-rpath,{library.parent}" for library in libraries]
    subprocess.run(command, check=True, cwd=tmp_path)
    loaded = [str(tmp_path / f"{name}.so") for name in built]
    done = subprocess.run([tmp_path / "program", *loaded], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    overflows = "main: these shapes need more bytes than 64 bits count; need n <= 18014398509481983"
    assert done.stdout.splitlines() == [
        *("384", f"AssertionError {overflows}") * 3,
        *("384", f"ValueError {overflows}"),
        *("0", "AssertionError no more than 4096 rows, not n"),
        "1536: main: its arena is too small for these shapes: needs 512*n bytes",
        "1536: main: `arena` does not begin at a multiple of 64, with a byte_offset of 0",
        *("384", f"AssertionError {overflows}"),
    ]


@pytest.mark.parametrize("name", ["Branches", "Nested", "Chain"])
def test_compiled_mode_gives_the_same(name: str) -> None:
    module = getattr(MODULES, name)
    shapes = [[6 if isinstance(e, tvm.ir.Var) else int(e) for e in p.ty.shape] for p in module["main"].params]
    arguments = [rows(*shape) if shape else np.array(True) for shape in shapes]
    results = []
    for mode in ("bytecode", "compiled"):
        built = relax.build(module, "llvm", relax_pipeline=symalloc.pipeline(), exec_mode=mode)
        results.append(bits(relax.VirtualMachine(built, tvm.cpu()), *arguments))
    assert results[0] == results[1]
