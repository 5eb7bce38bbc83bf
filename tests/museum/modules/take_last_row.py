"""The constant index -1 of R.take(mode="fast"): what TVM's torch importer makes of x[:, -1, :].

In this mode the kernel neither wraps nor checks its indices, so it reads the row in front of the buffer.  Seen on TVM
0.27: it returns whatever lies there, in a Llama-style head NaN.  SYM305.
"""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 16), dtype="float32")) -> R.Tensor((16,), dtype="float32"):
        with R.dataflow():
            last = R.take(x, R.const(-1, "int64"), axis=0, mode="fast")
            R.output(last)
        return last
