"""apache/tvm#17322: a storage of 16 bytes for m floats, written through.

Upstream (2024-08): the compiled module fails with "storage allocation failure" once the input is long enough; the
reporter asks for a check that says so early.  TVM 0.27 still runs it up to m = 1024, because the pooled allocator
rounds 16 bytes up to a page, and fails at 1025; with the naive allocator it fails at 5.  SYM101.
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
        storage = R.memory.alloc_storage(R.shape([16]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        alloc = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([m]), R.dtype("float32"))
        Module.add_one(x, alloc)
        return alloc
