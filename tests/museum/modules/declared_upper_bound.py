"""A declared upper bound that nothing enforces.

`tir_var_upper_bound` says that m is at most 4, and StaticPlanBlockMemory sizes every storage by it: 16 bytes here.
Nothing checks it on entry.  Seen on TVM 0.27: m = 5 runs on memory that was not reserved for it, m = 1025 fails with an
internal error.  The plans of torch and mlc-llm models all rest on such bounds.  SYM401 on its plan, a warning.
"""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("m",), dtype="float32")) -> R.Tensor(("m",), dtype="float32"):
        R.func_attr({"tir_var_upper_bound": {"m": 4}})
        with R.dataflow():
            a = R.add(x, R.const(1.0, "float32"))
            b = R.multiply(a, R.const(2.0, "float32"))
            c = R.exp(b)
            R.output(c)
        return c
