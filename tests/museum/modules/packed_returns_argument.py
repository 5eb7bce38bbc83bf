"""A packed function that returns its own argument.

`keep` hands back the tensor it was given, so `b` is `a`.  StaticPlanBlockMemory takes the last textual use of `a` for
its end and puts `c` into the same storage while `b` is still to be read.  Seen on TVM 0.27: wrong numbers, no error.
SYM203 on its plan.
"""
from tvm.script import ir as I, relax as R


@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor((4, 8), dtype="float32")) -> R.Tensor((4, 8), dtype="float32"):
        a = R.add(x, R.const(1.0, "float32"))
        b = R.call_packed("test.keep", a, ty_args=(R.Tensor((4, 8), dtype="float32"),))
        c = R.multiply(x, R.const(2.0, "float32"))
        d = R.add(b, c)
        return d
