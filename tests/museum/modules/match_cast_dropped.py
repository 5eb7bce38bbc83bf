"""A match_cast that is never executed.

The cast says that x has m elements, as many as y, and the storage is sized by that. TVM 0.27 drops the cast on its way:
KillAfterLastUse takes a bare symbol in the target for a definition, replaces it in what follows, and removes the cast
with its check (a target such as (m + 1,) or (4,) is kept and checked). Seen: n = 1000 and m = 5 run without an error, on
20 bytes reserved for 4000. SYM101.
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
    def main(x: R.Tensor(("n",), dtype="float32"), y: R.Tensor(("m",), dtype="float32")) -> R.Tensor(("n",), dtype="float32"):
        n = T.int64()
        m = T.int64()
        storage = R.memory.alloc_storage(R.shape([m * 4]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        same = R.match_cast(x, R.Tensor((m,), dtype="float32"))
        alloc = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([n]), R.dtype("float32"))
        Module.fill(alloc)
        return alloc
