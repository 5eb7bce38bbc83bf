"""Scripts as an editor holds them, which no file has; some names are beyond the BMP."""

from __future__ import annotations

HEAD = """\
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @T.prim_func
    def fill(p: T.handle):
        n = T.int64()
        B = T.match_buffer(p, (n,), "float32")
        for i in range(n):
            with T.sblock("B"):
                v = T.axis.spatial(n, i)
                B[v] = T.float32(1)

"""
FAULTY = (
    HEAD
    + """\
    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
        m = T.int64()
        cls = Module
        𐎠𐎡 = R.memory.alloc_storage(R.shape([16]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        𐎢 = R.memory.alloc_tensor(𐎠𐎡, R.prim_value(0), R.shape([m]), R.dtype("float32"))  # 🧮
        _ = cls.fill(𐎢)
        return 𐎢
"""
)
SOUND = FAULTY.replace("R.shape([16])", "R.shape([4 * m])")
BRANCHES = """\
from tvm.script import ir as I, relax as R


@I.ir_module
class Branches:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        x = R.add(x, x)
        if c:
            a = R.multiply(x, x)
            y = R.add(a, a)
        else:
            b = R.concat([x, x], axis=1)
            y = R.strided_slice(b, axes=[1], begin=[0], end=[4])
        return y
"""
