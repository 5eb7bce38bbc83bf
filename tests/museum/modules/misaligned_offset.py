"""A kernel's output on an offset that is no multiple of 64.

Compiled kernels refuse a tensor with a byte offset; R.memory.ensure_zero_offset hands them one without, zero-copy at
multiples of 64 and otherwise, silently, a copy.  The kernel then fills the copy.  Seen on TVM 0.27: a second view of
the same bytes holds none of what was written.  SYM104.
"""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @T.prim_func
    def fill(out: T.handle):
        n = T.int64()
        a = T.match_buffer(out, (n,), "float32")
        for i in range(n):
            a[i] = T.float32(1)

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), dtype="float32")) -> R.Tensor(("n",), dtype="float32"):
        n = T.int64()
        storage = R.memory.alloc_storage(R.shape([n * 8]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        placed = R.memory.alloc_tensor(storage, R.prim_value(n * 4), R.shape([n]), R.dtype("float32"))
        target = R.memory.ensure_zero_offset(placed)
        Module.fill(target)
        result = R.memory.ensure_zero_offset(placed)
        return result
