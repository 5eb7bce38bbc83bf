"""Two tensors in one storage of 128 bytes, the first one growing into the second.

`a` has m floats from byte 0, `b` sixteen floats from byte 64.  From m = 17 on, writing `a` changes what `b` holds, and
nothing reports it: the storage is large enough for either.  Seen on TVM 0.27: at m = 20, b[0:4] is overwritten.
SYM203; from m = 33 on, `a` outgrows the storage as well: SYM101.
"""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @T.prim_func
    def fill_sixteen(out: T.Buffer((16,), "float32")):
        for i in range(16):
            out[i] = T.float32(7)

    @T.prim_func
    def fill(out: T.handle):
        m = T.int64()
        a = T.match_buffer(out, (m,), "float32")
        for i in range(m):
            a[i] = T.float32(1)

    @R.function(pure=False)
    def main(x: R.Tensor(("m",), dtype="float32")) -> R.Tensor((16,), dtype="float32"):
        m = T.int64()
        storage = R.memory.alloc_storage(R.shape([128]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        a = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([m]), R.dtype("float32"))
        placed = R.memory.alloc_tensor(storage, R.prim_value(64), R.shape([16]), R.dtype("float32"))
        b = R.memory.ensure_zero_offset(placed)
        Module.fill_sixteen(b)
        Module.fill(a)
        out = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        Module.copy(b, out)
        return out

    @T.prim_func
    def copy(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            y[i] = x[i]
