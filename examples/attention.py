"""Attention over `n` rows, with a declared bound that nothing enforces: the example of docs/planning.md."""
from tvm.script import ir as I, relax as R


@I.ir_module
class Attention:
    @R.function
    def main(
        x: R.Tensor(("n", 128), dtype="float32"),
        w: R.Tensor((128, 64), dtype="float32"),
    ) -> R.Tensor(("n", 64), dtype="float32"):
        R.func_attr({"tir_var_upper_bound": {"n": 512}})
        with R.dataflow():
            a = R.matmul(x, w)
            scores = R.matmul(a, R.permute_dims(a))
            y = R.matmul(R.nn.softmax(scores), a)
            R.output(y)
        return y
