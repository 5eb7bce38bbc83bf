"""One step of gradient descent: the new weights can take the memory of the old ones."""
from tvm.script import ir as I, relax as R


@I.ir_module
class Step:
    @R.function
    def main(
        w: R.Tensor(("n", 64), dtype="float32"),
        gradient: R.Tensor(("n", 64), dtype="float32"),
    ) -> R.Tensor(("n", 64), dtype="float32"):
        with R.dataflow():
            step = R.multiply(gradient, R.const(0.01, "float32"))
            updated = R.subtract(w, step)
            R.output(updated)
        return updated
