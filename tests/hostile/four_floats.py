"""The text of small modules over tensors of four floats."""

from __future__ import annotations

__all__ = ["IF", "MAIN", "ONES", "PURE", "TWO", "body", "inplace", "module", "packed", "private"]

_KERNELS = """
    @T.prim_func
    def fill(out: T.Buffer((4,), "float32")):
        for i in range(4):
            out[i] = T.float32(9)

    @T.prim_func
    def copy(source: T.Buffer((4,), "float32"), out: T.Buffer((4,), "float32")):
        for i in range(4):
            out[i] = source[i]

    @T.prim_func
    def add_one(values: T.Buffer((4,), "float32")):
        for i in range(4):
            values[i] = values[i] + T.float32(1)

    @T.prim_func
    def add_to(values: T.Buffer((4,), "float32"), more: T.Buffer((4,), "float32")):
        for i in range(4):
            values[i] = values[i] + more[i]

    @T.prim_func
    def two(values: T.Buffer((4,), "float32")):
        for i in range(4):
            values[i] = values[i] * T.float32(2)
"""
_KIND = 'R.Tensor((4,), "float32")'

MAIN = f"""
    @R.function(pure=False)
    def main(x: {_KIND}) -> {_KIND}:
"""
PURE = MAIN.replace("(pure=False)", "")
TWO = PURE.replace(f"-> {_KIND}", f"-> R.Tuple({_KIND}, {_KIND})")
IF = MAIN.replace(") ->", ', yes: R.Tensor((), "bool")) ->')
ONES = 'R.const([1.0, 1.0, 1.0, 1.0], "float32")'


def module(*functions: str) -> str:
    """A module of these functions, with kernels: fill, copy, add_one, add_to, two."""
    return "@I.ir_module\nclass Module:" + _KERNELS + "".join(functions)


def body(head: str, *lines: str) -> str:
    """A function: `head`, such as MAIN, and the lines of its body."""
    return head + "".join(f"        {line}\n" for line in lines)


def private(head: str, name: str) -> str:
    """`head` for a function that only the module calls."""
    private = head.replace("R.function(", "R.function(private=True, ").replace(
        "R.function\n", "R.function(private=True)\n"
    )
    return private.replace("main(", f"{name}(")


def inplace(kernel: str, operands: str, places: str = "0", outputs: int = 1) -> str:
    """A R.call_tir_inplace."""
    out = _KIND if outputs == 1 else "[" + ", ".join([_KIND] * outputs) + "]"
    return f"R.call_tir_inplace(Module.{kernel}, ({operands},), inplace_indices=[{places}], out_ty={out})"


def packed(name: str, arguments: str, result: str = _KIND) -> str:
    """A R.call_packed."""
    return f'R.call_packed("{name}", {arguments}, ty_args=({result},))'
