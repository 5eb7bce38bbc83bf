"""The promise that arguments do not overlap: the last function of a module by name gives it for all."""

from __future__ import annotations

import re
from typing import Any

import tvm
from tvm import relax

import symalloc
from symalloc.relax.passes.pipeline import PromiseNoAlias

_SUMS = """
@I.ir_module
class Sums:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        with R.dataflow():
            y = R.add(x, x)
            r = R.add(R.add(y, x), R.add(x, y))
            R.output(r)
        return r
"""
_KERNELS = """
@I.ir_module
class Kernels:
    @T.prim_func(s_tir=True)
    def fill(x: T.Buffer((4,), "float32"), n: T.float32):
        for i in range(4):
            with T.sblock("x"):
                x[i] = n

    @T.prim_func(s_tir=True)
    def move(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("y"):
                y[i] = x[i]
"""


def kernels() -> tvm.IRModule:
    return tvm.script.from_source(_KERNELS)


def promised(module: tvm.IRModule) -> set[str]:
    kernels = ((v.name_hint, f) for v, f in module.functions_items() if isinstance(f, tvm.tirx.PrimFunc))
    return {name for name, f in kernels if f.attrs is not None and f.attrs.get("tirx.noalias")}


def assembly(module: Any) -> str:
    """What LLVM has made of all kernels."""
    own = module.inspect_source("ll") if module.kind == "llvm" else ""
    return str(own) + "".join(map(assembly, module.imports))


def test_what_follows_the_kernels_does_not_take_their_promise() -> None:
    with tvm.target.Target("llvm"):  # all kernels are compiled here, as a whole (tests/compile_once.py)
        built = relax.build(tvm.script.from_source(_SUMS), "llvm", relax_pipeline=symalloc.pipeline("llvm"))
    entries = re.findall(r"define dllexport .*@__tvm_ffi_(\w+)\(ptr (noalias)?", assembly(built.mod))
    assert max(name for name, _ in entries) == "shape_func"
    assert all(promise for _, promise in entries)


def test_one_buffer_overlaps_with_no_other() -> None:
    module = kernels()
    del module["move"]
    assert promised(PromiseNoAlias()(module)) == {"fill"}


def test_a_kernel_that_may_be_given_one_tensor_twice_keeps_all_as_they_are() -> None:
    module = kernels()
    assert PromiseNoAlias()(module).same_as(module)


def test_a_module_that_promises_all_of_it_already() -> None:
    module = kernels()
    module["move"] = module["move"].with_attr("tirx.noalias", True)
    once = PromiseNoAlias()(module)
    assert promised(once) == {"fill", "move"}
    assert PromiseNoAlias()(once).same_as(once)
