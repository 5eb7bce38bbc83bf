"""Whole modules: planned by TVM, written as JSON, of devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from symalloc.program import ir as m
from symalloc.program.types import TensorType
from symalloc.relax.extract import extract
from symalloc.size.expr import symbol

MLP = """
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.add(b, R.const(1, "float32"))
            R.output(c)
        return c
"""


def planned(mod: Any) -> Any:
    """What TVM's own passes make of a module, CUDA graphs included where the pass context asks for them."""
    with tvm.target.Target("llvm"):
        for step in (
            relax.transform.LegalizeOps(),
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
            relax.transform.StaticPlanBlockMemory(),
            relax.transform.RewriteCUDAGraph(),
            relax.transform.LowerAllocTensor(),
            relax.transform.KillAfterLastUse(),
        ):
            mod = step(mod)
    return mod


def kinds(program: m.Program) -> list[str]:
    return [type(i).__name__ for i in program.functions["main"].body.instructions]


def test_what_tvm_plans(parse: Callable[[str], Any]) -> None:
    program = extract(planned(parse(MLP)), name="Module", stage="KillAfterLastUse")
    assert not any(kind == "NotUnderstood" for kind in kinds(program))
    instructions = program.functions["main"].body.instructions
    storages = [i for i in instructions if isinstance(i, m.AllocStorage)]
    tensors = [i for i in instructions if isinstance(i, m.AllocTensor)]
    assert {storage.size for storage in storages} == {256 * symbol("n")}
    assert {tensor.storage for tensor in tensors} <= {storage.var for storage in storages}
    assert all(tensor.offset == 0 for tensor in tensors)
    calls = [i for i in instructions if isinstance(i, m.CallKernel)]
    assert {call.kernel for call in calls} <= set(program.kernels)
    assert sum(kind == "Kill" for kind in kinds(program)) > 0


def test_a_module_survives_json(parse: Callable[[str], Any]) -> None:
    mod = planned(parse(MLP))
    again = tvm.ir.load_json(tvm.ir.save_json(mod))
    before, after = extract(mod, name="M"), extract(again, name="M")
    assert kinds(before) == kinds(after)
    assert before.kernels == after.kernels
    assert before.functions["main"].symbols == after.functions["main"].symbols


def test_devices_by_their_place_in_the_module(parse: Callable[[str], Any]) -> None:
    mod = parse(
        """
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0, "global"), I.vdevice("llvm", 1, "local")]})

        @R.function
        def main(x: R.Tensor(("m",), "float32", "llvm:1"), y: R.Tensor(("m",), "float32", "llvm:0")):
            return x
        """
    )
    for module in (mod, tvm.ir.load_json(tvm.ir.save_json(mod))):
        x, y = extract(module, name="Module").functions["main"].params
        assert isinstance(x.type, TensorType)
        assert isinstance(y.type, TensorType)
        assert (x.type.device, x.type.scope) == (1, "local")
        assert (y.type.device, y.type.scope) == (0, "global")


def test_cuda_graphs_are_calls_of_their_functions(parse: Callable[[str], Any]) -> None:
    text = """
    @R.function
    def main(x: R.Tensor((8, 64), "float32"), w: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            a = R.nn.relu(w)
            b = R.nn.relu(a)
            c = R.matmul(x, b)
            d = R.nn.relu(c)
            R.output(d)
        return d
    """
    mod = parse(text)
    mod["main"] = mod["main"].with_attr("num_input", 1)
    with tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": True}):
        program = extract(planned(mod), name="M")
    calls = [i for i in program.functions["main"].body.instructions if isinstance(i, m.CallFunction)]
    assert calls[0].name == "cuda_graph_alloc"
    assert calls[0].arguments == ()
    assert calls[1].name.startswith("main_cuda_graph_capture")
    assert len(calls[1].arguments) == len(program.functions[calls[1].name].params)
