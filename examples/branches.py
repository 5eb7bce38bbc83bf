"""Both branches need an intermediate tensor: compiled by TVM 0.27's default pipeline, the else-branch segfaults."""
from tvm.script import ir as I, relax as R


@I.ir_module
class Branches:
    @R.function
    def main(
        positive: R.Tensor((), dtype="bool"), x: R.Tensor(("n", 64), dtype="float32")
    ) -> R.Tensor(("n", 64), dtype="float32"):
        if positive:
            a = R.exp(x)
            y = R.add(a, x)
        else:
            b = R.multiply(x, x)
            y = R.add(b, x)
        return y
