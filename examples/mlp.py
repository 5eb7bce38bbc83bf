"""A multi-layer perceptron over any batch: small enough to read its plan at a glance."""
from tvm.script import ir as I, relax as R


@I.ir_module
class MLP:
    @R.function
    def main(
        x: R.Tensor(("n", 128), dtype="float32"),
        w1: R.Tensor((128, 256), dtype="float32"),
        w2: R.Tensor((256, 256), dtype="float32"),
        w3: R.Tensor((256, 64), dtype="float32"),
    ) -> R.Tensor(("n", 64), dtype="float32"):
        with R.dataflow():
            a = R.matmul(x, w1)
            b = R.nn.gelu(a)
            c = R.matmul(b, w2)
            d = R.nn.gelu(c)
            e = R.add(b, d)
            f = R.matmul(e, w3)
            y = R.nn.softmax(f, axis=-1)
            R.output(y)
        return y
