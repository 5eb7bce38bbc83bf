"""The index that mlc-llm gives to the best experts of a token, before it looks at any.

Its `_gating_topk_init_local_top_k` (mlc_llm/op/moe_misc.py, since April 2025) stores each index at [-1] instead of [t]:
in front of the buffer.  Every mixture-of-experts model has such a kernel.  Where no score is above the least float, as
with NaN, the experts that are chosen are whatever the buffer held.  SYM306.
"""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @T.prim_func
    def top2(scores: T.handle, out: T.handle):
        batch_size = T.int64()
        x = T.match_buffer(scores, (batch_size, 8), "float32")
        chosen = T.match_buffer(out, (batch_size, 2), "int32")
        best = T.alloc_buffer((2,), "float32", scope="local")
        best_index = T.alloc_buffer((2,), "int32", scope="local")
        for i in range(batch_size):
            for t in range(2):
                best[t] = T.min_value("float32")
            for t in range(2):
                best_index[-1] = t
            for k in range(8):
                if x[i, k] > best[0]:
                    best[1] = best[0]
                    best_index[1] = best_index[0]
                    best[0] = x[i, k]
                    best_index[0] = k
                elif x[i, k] > best[1]:
                    best[1] = x[i, k]
                    best_index[1] = k
            for j in range(2):
                chosen[i, j] = best_index[j]

    @R.function(pure=False)
    def main(x: R.Tensor(("batch_size", 8), dtype="float32")) -> R.Tensor(("batch_size", 2), dtype="int32"):
        batch_size = T.int64()
        out = R.builtin.alloc_tensor(R.shape([batch_size, 2]), R.dtype("int32"), R.prim_value(0), R.str("global"))
        Module.top2(x, out)
        return out
