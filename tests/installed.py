"""`python -m tests.installed`: an installed wheel does what it is for, native library and rules included.

It runs without pytest, beside the wheel that cibuildwheel has just built.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import tvm

import symalloc
from symalloc.native.library import load_library

MODULE = """\
from tvm.script import ir as I, relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 16), "float32")) -> R.Tensor(("n", 16), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, x)
            c = R.multiply(a, b)
            R.output(c)
        return c
"""


def main() -> None:
    """Lint a module, plan it, run the plan, allocate from the native pool; the files for C++ are there."""
    load_library()
    assert (symalloc.cmake_dir() / "symalloc-config.cmake").is_file()
    assert (symalloc.cmake_dir().parents[2] / "include" / "symalloc" / "pool.h").is_file()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "module.py"
        file.write_text(MODULE)
        assert symalloc.lint(file).ok
        module = tvm.script.from_source(MODULE.split("\n\n\n")[1])
    assert symalloc.plan(module).plans["main"].arenas
    assert symalloc.run(module, {"n": 5}, check=True).difference is None
    pool = symalloc.Pool()
    assert pool.statistics().live == 0
    print("symalloc", symalloc.__version__, "works")


if __name__ == "__main__":
    main()
