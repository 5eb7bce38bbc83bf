"""apache/tvm#20191: both branches of an If reshape to a flat tensor and back.

Upstream (2026-08): an identity function that segfaults when the else-branch is taken, because StaticPlanBlockMemory
uses the then-branch's storage in the else-branch.  TVM 0.27 still does: SYM204 on its plan.
"""
from tvm.script import ir as I, relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), dtype="float32"), cond: R.Tensor((), dtype="bool")) -> R.Tensor((4, 8), dtype="float32"):
        if cond:
            flat = R.reshape(x, R.shape([32]))
            out = R.reshape(flat, R.shape([4, 8]))
        else:
            flat_too = R.reshape(x, R.shape([32]))
            out = R.reshape(flat_too, R.shape([4, 8]))
        return out
