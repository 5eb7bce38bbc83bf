"""mlc-llm#1987: a storage of 0 bytes under a tensor of 2048.

Upstream (2024-03): decoding stops with "attempted to allocate 2048 at offset 0 in region that is 0bytes".  Rewritten
with the size that fits the report: blocks of 64 positions, rounded down, so that short sequences reserve nothing.
TVM 0.27 fails in the same words.  SYM101.
"""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @T.prim_func
    def ones(out: T.handle):
        n = T.int64()
        a = T.match_buffer(out, (n, 512), "float32")
        for i, j in T.grid(n, 512):
            a[i, j] = T.float32(1)

    @R.function(pure=False)
    def decode(tokens: R.Tensor(("n",), dtype="int32")) -> R.Tensor(("n", 512), dtype="float32"):
        n = T.int64()
        storage = R.memory.alloc_storage(R.shape([n // 64 * 131072]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        hidden = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([n, 512]), R.dtype("float32"))
        Module.ones(hidden)
        return hidden
