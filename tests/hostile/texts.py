"""The text of small modules: kernels, functions, and what they say of memory."""

from __future__ import annotations

import re

__all__ = [
    *("COPY", "FLAG", "FOUR", "N", "ONES", "ONES_OF_FOUR", "PLUS", "SIXTEEN", "TWICE", "VECTOR"),
    *("four_floats", "fresh", "function", "inplace", "kernel", "module", "packed", "plus"),
    *("storage", "tensor", "view"),
]

FOUR, SIXTEEN, N = 'R.Tensor((4,), "float32")', 'R.Tensor((16,), "float32")', 'R.Tensor(("n",), "float32")'
FLAG = 'R.Tensor((), "bool")'


def module(*functions: str) -> str:
    """The module of these kernels and functions."""
    return "@I.ir_module\nclass Module:" + "".join(functions)


def kernel(
    name: str, *lines: str, anywhere: str = "", factor: str = "16", dtype: str = "float32", **shapes: str
) -> str:
    """A kernel on buffers of these shapes; those in `anywhere` begin at multiples of `factor` elements."""
    symbols = sorted(set(re.findall(r"\b[a-z]\b", " ".join(shapes.values()))))
    heads = [f"{symbol} = T.int64()" for symbol in symbols]
    for buffer, shape in shapes.items():
        place = f", elem_offset=T.int64(), offset_factor={factor}" if buffer in anywhere else ""
        heads.append(f'{buffer} = T.match_buffer({buffer}_, ({shape},), "{dtype}"{place})'.replace(",,", ","))
    parameters = ", ".join(f"{buffer}_: T.handle" for buffer in shapes)
    return f"\n    @T.prim_func\n    def {name}({parameters}):\n{_inside(*heads, *lines)}"


def function(
    parameters: str, *lines: str, result: str = "", name: str = "main", how: str = "pure=False"
) -> str:
    """A function in which the symbols of its parameters are known; `how`: arguments of its decorator."""
    symbols = [f"{symbol} = T.int64()" for symbol in sorted(set(re.findall(r'"([a-z])"', parameters)))]
    to = f" -> {result}" if result else ""
    head = f"\n    @R.function({how})\n    def {name}({parameters}){to}:\n".replace("function()", "function")
    return head + _inside(*symbols, *lines)


def _inside(*lines: str) -> str:
    return "".join(f"        {line}\n" for text in lines for line in text.strip("\n").split("\n"))


def storage(nbytes: str) -> str:
    """A storage of so many bytes."""
    return f'R.memory.alloc_storage(R.shape([{nbytes}]), R.prim_value(0), R.str("global"), R.dtype("uint8"))'


def tensor(storage: str, extent: str = "16", offset: str = "0", dtype: str = "float32") -> str:
    """A tensor on a storage, `offset` in bytes."""
    place = f"{storage}, R.prim_value({offset}), R.shape([{extent}])"
    return f'R.memory.alloc_tensor({place}, R.dtype("{dtype}"))'


def fresh(extent: str, dtype: str = "float32") -> str:
    """A tensor with a storage of its own."""
    return (
        f'R.builtin.alloc_tensor(R.shape([{extent}]), R.dtype("{dtype}"), R.prim_value(0), R.str("global"))'
    )


def view(source: str, extent: str, offset: str = "0", dtype: str = "float32") -> str:
    """Another tensor on the bytes of `source`."""
    return f'R.memory.view({source}, R.shape([{extent}]), R.dtype("{dtype}"), R.prim_value({offset}))'


# -- tensors of any length, at any multiple of 64 bytes ------------------------------------------------------

VECTOR = "for i in range(n):"
ONES = kernel("ones", VECTOR, "    a[i] = T.float32(1)", a="n", anywhere="a")
COPY = kernel("copy", VECTOR, "    b[i] = a[i]", a="n", b="n", anywhere="ab")
PLUS = kernel("plus", VECTOR, "    c[i] = a[i] + b[i]", a="n", b="n", c="n", anywhere="abc")
TWICE = kernel("twice", VECTOR, "    b[i] = a[i] * T.float32(2)", a="n", b="n", anywhere="ab")


def plus(left: str, right: str, extent: str = "16") -> str:
    """The sum of two tensors, by the kernel PLUS."""
    return f'R.call_tir(Module.plus, ({left}, {right}), out_ty=R.Tensor(({extent},), "float32"))'


# -- four floats ---------------------------------------------------------------------------------------------

_EACH = "for i in range(4):"
_FOUR_FLOATS = "".join(
    (
        kernel("fill", _EACH, "    a[i] = T.float32(9)", a="4"),
        kernel("copy", _EACH, "    b[i] = a[i]", a="4", b="4"),
        kernel("add_one", _EACH, "    a[i] = a[i] + T.float32(1)", a="4"),
        kernel("add_to", _EACH, "    a[i] = a[i] + b[i]", a="4", b="4"),
        kernel("two", _EACH, "    a[i] = a[i] * T.float32(2)", a="4"),
    )
)
ONES_OF_FOUR = 'R.const([1.0, 1.0, 1.0, 1.0], "float32")'


def four_floats(
    *lines: str, more: str = "", result: str = FOUR, how: str = "pure=False", functions: str = ""
) -> str:
    """A module with kernels fill, copy, add_one, add_to and two; its main takes x and `more`."""
    return module(_FOUR_FLOATS, functions, function(f"x: {FOUR}{more}", *lines, result=result, how=how))


def inplace(kernel: str, operands: str, places: str = "0", outputs: int = 1) -> str:
    """A R.call_tir_inplace."""
    out = FOUR if outputs == 1 else "[" + ", ".join([FOUR] * outputs) + "]"
    return f"R.call_tir_inplace(Module.{kernel}, ({operands},), inplace_indices=[{places}], out_ty={out})"


def packed(name: str, arguments: str, result: str = FOUR) -> str:
    """A R.call_packed."""
    return f'R.call_packed("{name}", {arguments}, ty_args=({result},))'
