"""apache/tvm#17322: a storage of 16 bytes for a tensor of m floats; TVM reports an error only at m = 1025."""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @T.prim_func
    def fill(out: T.handle):
        m = T.int64()
        a = T.match_buffer(out, (m,), "float32")
        for i in range(m):
            a[i] = T.float32(1)

    @R.function(pure=False)
    def main(x: R.Tensor(("m",), dtype="float32")) -> R.Tensor(("m",), dtype="float32"):
        m = T.int64()
        storage = R.memory.alloc_storage(R.shape([16]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        alloc = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([m]), R.dtype("float32"))
        Module.fill(alloc)
        return alloc
