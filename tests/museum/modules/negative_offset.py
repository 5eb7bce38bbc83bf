"""A tensor placed backwards from the end of its storage.

The storage has 1024 bytes and the tensor m rows of 64, so it starts at 1024 - 64*m: in front of the storage once m is
more than 16.  TVM 0.27's check `offset + size <= storage size` always holds here, so that the kernel writes before the
buffer.  SYM102.
"""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @T.prim_func
    def fill(out: T.handle):
        m = T.int64()
        a = T.match_buffer(out, (m, 16), "float32")
        for i, j in T.grid(m, 16):
            a[i, j] = T.float32(1)

    @R.function(pure=False)
    def main(x: R.Tensor(("m", 16), dtype="float32")) -> R.Tensor(("m", 16), dtype="float32"):
        m = T.int64()
        storage = R.memory.alloc_storage(R.shape([1024]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        placed = R.memory.alloc_tensor(storage, R.prim_value(1024 - 64 * m), R.shape([m, 16]), R.dtype("float32"))
        rows = R.memory.ensure_zero_offset(placed)
        Module.fill(rows)
        return rows
