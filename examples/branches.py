"""Short inputs take one branch, long ones the other: built by TVM 0.27 alone, the other branch segfaults."""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor(("n", 64), dtype="float32")) -> R.Tensor(("n", 64), dtype="float32"):
        n = T.int64()
        if R.prim_value(n <= 16):
            a = R.exp(x)
            y = R.add(a, x)
        else:
            b = R.multiply(x, x)
            y = R.add(b, x)
        return y
