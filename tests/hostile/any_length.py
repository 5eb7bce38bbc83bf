"""The text of small modules over tensors of any length, at any multiple of 64 bytes."""

from __future__ import annotations

__all__ = ["COPY", "MODULE", "ONES", "PLUS", "plus", "storage", "tensor"]

MODULE = "\n@I.ir_module\nclass Module:"
"""The head of a module; functions follow."""
ONES = """
    @T.prim_func
    def ones(out: T.handle):
        k = T.int64()
        a = T.match_buffer(out, (k,), "float32", offset_factor=16)
        for i in range(k):
            a[i] = T.float32(1)
"""
COPY = """
    @T.prim_func
    def copy(source: T.handle, out: T.handle):
        k = T.int64()
        a = T.match_buffer(source, (k,), "float32", offset_factor=16)
        b = T.match_buffer(out, (k,), "float32", offset_factor=16)
        for i in range(k):
            b[i] = a[i]
"""
PLUS = """
    @T.prim_func
    def plus(left: T.handle, right: T.handle, out: T.handle):
        k = T.int64()
        a = T.match_buffer(left, (k,), "float32", offset_factor=16)
        b = T.match_buffer(right, (k,), "float32", offset_factor=16)
        c = T.match_buffer(out, (k,), "float32", offset_factor=16)
        for i in range(k):
            c[i] = a[i] + b[i]
"""


def storage(nbytes: str) -> str:
    """A storage of so many bytes."""
    return f'R.memory.alloc_storage(R.shape([{nbytes}]), R.prim_value(0), R.str("global"), R.dtype("uint8"))'


def tensor(storage: str, extent: str = "16", offset: str = "0") -> str:
    """A tensor of floats on a storage, `offset` in bytes."""
    place = f"{storage}, R.prim_value({offset}), R.shape([{extent}])"
    return f'R.memory.alloc_tensor({place}, R.dtype("float32"))'


def plus(left: str, right: str, extent: str = "16") -> str:
    """The sum of two tensors, by the kernel PLUS."""
    return f'R.call_tir(Module.plus, ({left}, {right}), out_ty=R.Tensor(({extent},), "float32"))'
