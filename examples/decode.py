"""A decoding step: it appends a row to a cache of keys, which has room for `c` rows and holds `p`."""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Decode:
    @T.prim_func(private=True)
    def append(cache: T.handle, row: T.handle, at: T.int64, longer: T.handle):
        c = T.int64()
        m = T.int64()
        old = T.match_buffer(cache, (c, 16), "float32")
        new = T.match_buffer(row, (1, 16), "float32")
        out = T.match_buffer(longer, (m, 16), "float32")
        for i, j in T.grid(m, 16):
            out[i, j] = T.if_then_else(i == at, new[0, j], old[i, j])

    @R.function(pure=False)
    def main(
        caches: R.Tuple(R.Tensor(("c", 16), "float32"), R.Tensor(("c", 16), "float32")),
        key: R.Tensor((1, 16), "float32"),
        value: R.Tensor((1, 16), "float32"),
        past: R.Shape(["p"]),
    ) -> R.Tuple(R.Tensor((1, 16), "float32"), R.Tensor(("p + 1", 16), "float32"), R.Tensor(("p + 1", 16), "float32")):
        c = T.int64()
        p = T.int64()
        cls = Decode
        R.assert_op(p >= 0, [p], format="{} rows are no number of rows")
        R.assert_op(p <= c, [p, c], format="the cache holds {} rows and has room for {}")
        keys = R.call_tir(cls.append, (caches[0], key, p), R.Tensor((p + 1, 16), "float32"))
        values = R.call_tir(cls.append, (caches[1], value, p), R.Tensor((p + 1, 16), "float32"))
        weights = R.nn.softmax(R.matmul(key, R.permute_dims(keys)))
        answer = R.matmul(weights, values)
        return (answer, keys, values)
