"""apache/tvm#20190 (and #20207): a match_cast is an alias that the planner did not see.

Upstream (2026-08): with `left` a match_cast of `src`, StaticPlanBlockMemory ended `src` at the cast and gave its
storage to `right`; the model answered right + right, without an error.  The planned module below is the one the report
describes.  TVM 0.27 has the repair (#20220) and plans two storages, but still compiles and runs this one, wrongly.
SYM203.
"""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @T.prim_func
    def add_quarter(x: T.Buffer((5, 8), "float32"), y: T.Buffer((5, 8), "float32")):
        for i, j in T.grid(5, 8):
            y[i, j] = x[i, j] + T.float32(0.25)

    @T.prim_func
    def add_eighth(x: T.Buffer((5, 8), "float32"), y: T.Buffer((5, 8), "float32")):
        for i, j in T.grid(5, 8):
            y[i, j] = x[i, j] + T.float32(0.125)

    @T.prim_func
    def add(x: T.Buffer((5, 8), "float32"), y: T.Buffer((5, 8), "float32"), z: T.Buffer((5, 8), "float32")):
        for i, j in T.grid(5, 8):
            z[i, j] = x[i, j] + y[i, j]

    @R.function(pure=False)
    def main(x: R.Tensor((5, 8), dtype="float32")) -> R.Tensor((5, 8), dtype="float32"):
        storage = R.memory.alloc_storage(R.shape([160]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        src = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([5, 8]), R.dtype("float32"))
        Module.add_quarter(x, src)
        left = R.match_cast(src, R.Tensor((5, 8), dtype="float32"))
        right = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([5, 8]), R.dtype("float32"))
        R.memory.kill_storage(storage)
        Module.add_eighth(x, right)
        out = R.builtin.alloc_tensor(R.shape([5, 8]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        Module.add(left, right, out)
        return out
