"""The condition of an If that begins behind its pointer.

TVM keeps a tensor's byte offset apart from its pointer, and the virtual machine reads the test of an If at the pointer
(`read_if_cond`).  A planner that puts the condition on byte 64 of a storage therefore has the branch chosen by what lies
at byte 0.  Seen on TVM 0.27: wrong numbers, no error.  SYM112.
"""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @T.prim_func
    def both(first: T.handle, out: T.handle):
        start = T.int64()
        a = T.match_buffer(first, (), "bool")
        b = T.match_buffer(out, (), "bool", elem_offset=start, offset_factor=64)
        a[()] = T.bool(False)
        b[()] = T.bool(True)

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), dtype="float32")) -> R.Tensor(("n",), dtype="float32"):
        storage = R.memory.alloc_storage(R.shape([65]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        no = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([]), R.dtype("bool"))
        yes = R.memory.alloc_tensor(storage, R.prim_value(64), R.shape([]), R.dtype("bool"))
        Module.both(no, yes)
        if yes:
            y = R.add(x, x)
        else:
            y = R.subtract(x, x)
        return y
