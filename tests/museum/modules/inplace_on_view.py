"""apache/tvm#19577: what DataflowUseInplaceCalls makes of `y + y + 1`, where one `y` goes through a broadcast_to of its
own shape.

The pass takes `column` for a tensor of its own.  RewriteDataflowReshape makes a view of it: the call in place
overwrites `y`, which is read afterwards.  The module without that pass gives [5, 9, 13] for [1, 2, 3].  SYM210.
"""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def add_inplace(values: T.handle):
        n = T.int64()
        a = T.match_buffer(values, (n,), "float32")
        for i in range(n):
            a[i] = a[i] + T.float32(1)

    @R.function
    def main(x: R.Tensor(("n",), dtype="float32")) -> R.Tensor(("n",), dtype="float32"):
        n = T.int64()
        cls = Module
        with R.dataflow():
            y = R.add(x, x)
            column = R.broadcast_to(y, R.shape([n]))
            more = R.call_tir_inplace(cls.add_inplace, (column,), inplace_indices=[0], out_ty=R.Tensor((n,), "float32"))
            gv = R.add(more, y)
            R.output(gv)
        return gv
