"""TVM's own test of RewriteCUDAGraph: 16 bytes for m floats, "m is assumed to be bounded".

The test captures a symbolic dimension and gives each intermediate a storage of 16 bytes; that m is at most 4 stands in
a comment only.  Nothing in the module says so, and TVM 0.27 accepts and runs it with larger m.  SYM101, twice.
"""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @T.prim_func
    def add_one(x: T.handle, y: T.handle):
        m = T.int64()
        a = T.match_buffer(x, (m,), "float32")
        b = T.match_buffer(y, (m,), "float32")
        for i in range(m):
            b[i] = a[i] + T.float32(1)

    @R.function(pure=False)
    def main(x: R.Tensor(("m",), dtype="float32")) -> R.Tensor(("m",), dtype="float32"):
        m = T.int64()
        R.func_attr({"relax.rewrite_cuda_graph.capture_symbolic_vars": ["m"]})
        storage = R.memory.alloc_storage(R.shape([16]), 0, "global", "float32")
        first = R.memory.alloc_tensor(storage, 0, R.shape([m]), "float32")
        Module.add_one(x, first)
        storage_1 = R.memory.alloc_storage(R.shape([16]), 0, "global", "float32")
        second = R.memory.alloc_tensor(storage_1, 0, R.shape([m]), "float32")
        Module.add_one(first, second)
        out = R.builtin.alloc_tensor(R.shape([m]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        Module.add_one(second, out)
        return out
