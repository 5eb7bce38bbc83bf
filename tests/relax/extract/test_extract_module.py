"""Whole modules: planned by TVM, written as JSON, of devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax

import symalloc
from symalloc.program import ir as m
from symalloc.program.types import TensorType
from symalloc.relax.extract import extract
from symalloc.relax.files.load import read_one


def planned(mod: Any) -> Any:
    """What TVM's own passes make of a module, CUDA graphs included where the pass context asks for them."""
    names = [
        "LegalizeOps",
        "ToNonDataflow",
        "RemovePurityChecking",
        "CallTIRRewrite",
        "StaticPlanBlockMemory",
    ]
    names += ["RewriteCUDAGraph", "LowerAllocTensor", "KillAfterLastUse"]
    with tvm.target.Target("llvm"):
        return tvm.transform.Sequential([getattr(relax.transform, name)() for name in names])(mod)


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
        types = [param.type for param in extract(module, name="Module").functions["main"].params]
        places = [(kind.device, kind.scope) for kind in types if isinstance(kind, TensorType)]
        assert places == [(1, "local"), (0, "global")]


def test_cuda_graphs_are_calls_of_their_functions(parse: Callable[[str], Any]) -> None:
    text = """
    @R.function
    def main(x: R.Tensor((8, 64), "float32"), w: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            d = R.nn.relu(R.matmul(x, R.nn.relu(R.nn.relu(w))))
            R.output(d)
        return d
    """
    mod = parse(text)
    mod["main"] = mod["main"].with_attr("num_input", 1)
    with tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": True}):
        program = extract(planned(mod), name="M")
    calls = [i for i in program.functions["main"].body.instructions if isinstance(i, m.CallFunction)]
    assert (calls[0].name, calls[0].arguments) == ("cuda_graph_alloc", ())
    assert calls[1].name.startswith("main_cuda_graph_capture")
    assert len(calls[1].arguments) == len(program.functions[calls[1].name].params)


SCRIPT = """
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 4), "float32"), i: R.Tensor((3,), "int64"), c: R.Tensor((), "bool")):
        {body}
        return z
"""
BODIES = {
    "exp": "z = R.exp(x)",
    "sort": "z = R.sort(x)",
    "cumsum": "z = R.cumsum(x, axis=0)",
    "unique": "z = R.unique(i, sorted=True)",
    "nonzero": "z = R.nonzero(x)",
    "print": 'u = R.print(x, format="{}")\n        z = R.exp(x)',
    "assertion": 'u = R.assert_op(c, format="no")\n        z = R.exp(x)',
    "shapes": "s = R.shape_of(x)\n        t = R.tensor_to_shape(i)\n        z = (s, t)",
    "reshape": "y = R.exp(x)\n        z = R.reshape(y, R.shape([4, T.int64(2)]))",
    "view": 'z = R.memory.view(x, R.shape([4]), "float32", 0)',
    "no_grad": "y = R.grad.no_grad(x)\n        z = R.exp(y)",
    "dropout": "y = R.nn.dropout(x, rate=0.5)\n        z = y[0]",
    "packed": 'z = R.call_pure_packed("f", x, ty_args=R.Tensor((4,), "float32"))',
    "inplace": 'z = R.call_inplace_packed("f", i, inplace_indices=[0], ty_args=R.Tensor((3,), "int64"))',
    "destination": 'z = R.call_dps_packed("f", (x,), out_ty=R.Tensor((4,), "float32"))',
    "null": "y = R.null_value()\n        z = R.exp(x)",
    "fused_multiply_add": "y = R.exp(x)\n        z = R.ewise_fma(y, x, y)",
    "wrapped": "y = R.exp(x)\n        z = R.wrap_param(x)",
    "marked": "y = R.exp(x)\n        z = R.builtin.stop_lift_params(y)",
    "hinted": "y = R.exp(x)\n        z = R.hint_on_device(y, R.device(1, 0))",
    "python": 'z = R.call_py_func("f", (x,), out_ty=R.Tensor((4,), "float32"))',
    "reduced_by_all": "z = R.ccl.allreduce(x)",
    "of_unknown_rank": """y = R.call_pure_packed("f", x, ty_args=R.Tensor(dtype="float32"))
        z = R.sum(y)""",
}


@pytest.mark.parametrize("body", BODIES)
def test_what_tvm_cannot_build_is_said(body: str) -> None:
    text = SCRIPT.format(body=BODIES[body])
    module = read_one(Path("module.py"), data=text.encode(), trust=True)
    report = symalloc.lint(module, select=["SYM904"])
    said = [d for d in report if "no pass of TVM lowers" in d.message]
    try:
        relax.build(module, "llvm")
    except Exception as error:
        assert said and not report.ok, error
    else:
        assert not said


def test_a_plan_says_so_too(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(SCRIPT.format(body=BODIES["fused_multiply_add"]))
    status, _, err = run("plan", file)
    assert status == 0
    assert "not verified: `relax.ewise_fma`, which no pass of TVM lowers: it cannot build the module" in err
