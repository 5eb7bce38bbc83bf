"""apache/tvm#20134: vm.builtin.reshape returns a view, which the planner took for a new tensor.

Upstream (2026-08): DispatchSortScan emits calls of vm.builtin.reshape before memory planning; StaticPlanBlockMemory
ended the source at the call and gave its storage to the next tensor while the view was still read.  The planned module
below shows the fault.  TVM 0.27 has the repair and plans two storages, but still compiles and runs this one, wrongly.
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
    def add(x: T.Buffer((40,), "float32"), y: T.Buffer((5, 8), "float32"), z: T.Buffer((40,), "float32")):
        for i in range(40):
            z[i] = x[i] + y[i // 8, i % 8]

    @R.function(pure=False)
    def main(x: R.Tensor((5, 8), dtype="float32")) -> R.Tensor((40,), dtype="float32"):
        storage = R.memory.alloc_storage(R.shape([160]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        src = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([5, 8]), R.dtype("float32"))
        Module.add_quarter(x, src)
        flat = R.call_packed("vm.builtin.reshape", src, R.shape([40]), ty_args=(R.Tensor((40,), dtype="float32"),))
        R.memory.kill_tensor(src)
        right = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([5, 8]), R.dtype("float32"))
        R.memory.kill_storage(storage)
        Module.add_eighth(x, right)
        out = R.builtin.alloc_tensor(R.shape([40]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        Module.add(flat, right, out)
        return out
