"""A tensor on one device, a storage on another.

StaticPlanBlockMemory matches storages by size, element type and scope, but not by device: what is dead on the first
device is handed out on the second.  Seen on TVM 0.27: the tensor is refused when the model runs.  SYM106 on its plan.
"""
from tvm.script import ir as I, relax as R


@I.ir_module
class Module:
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0, "global"), I.vdevice("llvm", 1, "global")]})

    @R.function
    def main(x: R.Tensor(("n", 4), "float32", "llvm:0")) -> R.Tensor(("n", 4), "float32", "llvm:1"):
        a = R.exp(x)
        b = R.multiply(a, a)
        c = R.add(b, a)
        moved = R.to_vdevice(c, "llvm:1")
        d = R.exp(moved)
        e = R.multiply(d, moved)
        return e
