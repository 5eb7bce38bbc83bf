"""A variable that is used after it was killed.

kill_tensor clears the register, so that the kernel is handed nothing.  TVM 0.27 builds the module without a word; when
it runs, the kernel refuses its argument.  SYM201.
"""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @T.prim_func
    def add_one(x: T.handle, y: T.handle):
        n = T.int64()
        a = T.match_buffer(x, (n,), "float32")
        b = T.match_buffer(y, (n,), "float32")
        for i in range(n):
            b[i] = a[i] + T.float32(1)

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), dtype="float32")) -> R.Tensor(("n",), dtype="float32"):
        n = T.int64()
        storage = R.memory.alloc_storage(R.shape([n * 4]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        first = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([n]), R.dtype("float32"))
        Module.add_one(x, first)
        R.memory.kill_tensor(first)
        out = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        Module.add_one(first, out)
        return out
