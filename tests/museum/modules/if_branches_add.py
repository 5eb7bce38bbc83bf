"""apache/tvm#17348: each branch of an If needs temporaries of the same size.

Upstream (2024-09): the compiled model segfaults when the else-branch is taken.  StaticPlanBlockMemory lets the
else-branch use a storage that only the then-branch allocates.  TVM 0.27 still does: SYM204 on its plan.
"""
from tvm.script import ir as I, relax as R


@I.ir_module
class Module:
    @R.function
    def main(cond: R.Tensor((), dtype="bool"), x: R.Tensor((1,), dtype="float32")) -> R.Tensor((1,), dtype="float32"):
        if cond:
            doubled = R.add(x, x)
            again = R.add(x, x)
            y = R.multiply(doubled, again)
        else:
            squared = R.multiply(x, x)
            also = R.multiply(x, x)
            y = R.add(squared, also)
        return y
