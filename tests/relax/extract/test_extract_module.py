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


def test_a_function_that_the_module_lacks_is_said(parse: Callable[[str], Any]) -> None:
    missing = tvm.ir.GlobalVar("gone")
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    y = relax.Var("y", relax.TensorType((4,), "float32"))
    block = relax.BindingBlock([relax.VarBinding(y, tvm.ir.Call(missing, [x]))])
    function = relax.Function(
        [x], relax.SeqExpr([block], y), relax.TensorType((4,), "float32"), is_pure=False
    )
    call = extract(tvm.IRModule({"main": function}), name="M").functions["main"].body.instructions[0]
    assert isinstance(call, m.NotUnderstood)
    assert "`gone`" in call.what


def test_an_extern_function_of_the_module_is_a_packed_call(parse: Callable[[str], Any]) -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    y = relax.Var("y", relax.TensorType((4,), "float32"))
    callee = tvm.ir.GlobalVar("shim")
    block = relax.BindingBlock([relax.VarBinding(y, tvm.ir.Call(callee, [x]))])
    function = relax.Function(
        [x], relax.SeqExpr([block], y), relax.TensorType((4,), "float32"), is_pure=False
    )
    mod = tvm.IRModule({"main": function, callee: relax.ExternFunc("real.name")})
    call = extract(mod, name="M").functions["main"].body.instructions[0]
    assert isinstance(call, m.CallPacked)
    assert (call.name, call.ownership) == ("real.name", m.Ownership.UNKNOWN)


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


def test_a_module_out_of_normal_form_is_read_all_the_same() -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    y = relax.Var("y", relax.TensorType((4,), "float32"))
    pair = relax.Tuple([x, x])
    block = relax.BindingBlock(
        [relax.VarBinding(y, relax.op.add(relax.TupleGetItem(pair, 0), relax.op.negative(x)))]
    )
    function = relax.Function([x], relax.SeqExpr([block], y), relax.TensorType((4,), "float32"))
    field, negative, add = (
        extract(tvm.IRModule({"main": function}), name="M").functions["main"].body.instructions
    )
    assert isinstance(field, m.TakeField)
    assert isinstance(add, m.CallOperator)
    assert isinstance(negative, m.CallOperator)
    assert add.arguments == (field.var, negative.var)
