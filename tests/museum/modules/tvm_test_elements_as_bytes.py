"""TVM's own test of RewriteCUDAGraph: the size of a storage counted in elements.

R.memory.alloc_storage takes bytes and ignores its dtype; the test reserves R.shape([8]) for eight floats, which are 32
bytes.  R.vm.alloc_storage of the same arguments would have been right: it multiplies.  TVM 0.27 runs it, since every
storage is rounded up to a page.  SYM101, always-invalid.
"""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @T.prim_func
    def exp(x: T.Buffer((2, 4), "float32"), y: T.Buffer((2, 4), "float32")):
        for i, j in T.grid(2, 4):
            y[i, j] = T.exp(x[i, j])

    @R.function(pure=False)
    def main(x: R.Tensor((2, 4), dtype="float32")) -> R.Tensor((2, 4), dtype="float32"):
        storage = R.memory.alloc_storage(R.shape([8]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        alloc = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([2, 4]), R.dtype("float32"))
        Module.exp(x, alloc)
        out = R.builtin.alloc_tensor(R.shape([2, 4]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        Module.exp(alloc, out)
        return out
