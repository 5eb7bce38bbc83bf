"""apache/tvm#20269: allocation sizes that wrap in 64 bits.

Upstream (2026-09): TVM multiplies extents without checking, so that a size beyond 2**63 becomes a small or negative
number which is then allocated.  On TVM 0.27 the shape (m, m, m) of floats does so in the VM: at m = 2**22 the number
of bytes is 2**68, which wraps to 0, and an empty buffer is handed out without an error.  SYM105.
"""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @R.function(pure=False)
    def main(m: R.Prim("int64")) -> R.Tensor(("m", "m", "m"), dtype="float32"):
        m = T.int64()
        storage = R.memory.alloc_storage(R.shape([m * m * m * 4]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        cube = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([m, m, m]), R.dtype("float32"))
        return cube
