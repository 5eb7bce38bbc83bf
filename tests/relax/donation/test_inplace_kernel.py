"""Kernels that write their output over an input: what is proved, and that they compute the same."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import symalloc.relax.donation.donate as subject
from symalloc.program.ir import CallKernel, KernelBuffer, Program, Var
from symalloc.program.types import ScalarType, TensorType, TupleType
from symalloc.prover.domain import INT64_MIN, Domain
from symalloc.prover.prover import Prover
from symalloc.relax.donation.donate import Overlay, in_place
from symalloc.relax.extract.kernel_body import extract_kernel
from symalloc.size.expr import symbol

N, M, AT = (te.var(name, "int64") for name in ("n", "m", "at"))
A, B = te.placeholder((N, 8), name="a"), te.placeholder((N, 8), name="b")
NEW, LONG = te.placeholder((1, 8), name="new"), te.placeholder((N,), name="a")
ROW = te.reduce_axis((0, 8))
SUMS = te.compute((N,), lambda i: te.sum(A[i, ROW], axis=ROW))
COMPUTED = {
    "axpy": (A, B, te.compute((N, 8), lambda i, j: A[i, j] + B[i, j] * 2)),
    "rows": (A, te.compute((N, 8), lambda i, j: A[i, j] / SUMS[i])),
    "append": (
        A,
        NEW,
        AT,
        te.compute((M, 8), lambda i, j: tirx.if_then_else(tirx.EQ(i, AT), NEW[0, j], A[i, j])),
    ),
    "counted": (LONG, te.compute((8,), lambda i: LONG[i] + tirx.Cast("float32", N))),
}


def _kernel(name: str, *lines: str, shape: str = "8,", dtype: str = "float32", out: str = "") -> str:
    """A kernel from a to out, and to more if a line stores there; `out`: of another shape or type."""
    kind = f'T.Buffer(({shape}), "{dtype}")'
    more = f", more: {kind}" if any("more[" in line for line in lines) else ""
    body = "\n".join(f"        {line}" for line in lines)
    return f"\n    @T.prim_func\n    def {name}(a: {kind}, out: {out or kind}{more}):\n{body}\n"


_EACH, _SQUARE = "for i in range(8):", {"shape": "8, 8"}
SOURCE = "@I.ir_module\nclass Kernels:\n" + "".join(
    (
        _kernel("swapped", "for j, i in T.grid(8, 8):", "    out[i, j] = a[i, j]", **_SQUARE),
        _kernel("flip", _EACH, "    out[i] = a[7 - i]"),
        _kernel("turn", "for i, j in T.grid(8, 8):", "    out[i, j] = a[j, i]", **_SQUARE),
        _kernel("spread", "for i, j in T.grid(8, 8):", "    out[i, j] = a[i, 0]", **_SQUARE),
        _kernel("twice", "for k, i in T.grid(2, 8):", "    out[i] = a[i] + T.float32(1)"),
        _kernel(
            "again", _EACH, "    out[i] = a[i] + T.float32(1)", _EACH, "    out[i] = a[i] + T.float32(2)"
        ),
        _kernel("total", _EACH, "    out[i] = T.float32(0)", _EACH, "    out[i] = out[i] + a[i]"),
        _kernel("later", _EACH, "    out[i] = a[i] + T.float32(1)", _EACH, "    more[i] = a[i]"),
        _kernel("between", _EACH, "    more[i] = a[7 - i]", "    out[i] = a[i] + T.int8(1)", dtype="int8"),
        _kernel("part", _EACH, "    if i < 4:", "        out[i] = a[7 - i]"),
        _kernel("gather", _EACH, "    out[i] = a[a[i]]", dtype="int32"),
        _kernel("narrow", _EACH, '    out[i] = T.Cast("float16", a[i])', out='T.Buffer((8,), "float16")'),
        _kernel(
            "wide",
            *("for i, j in T.grid(8, 3):", "    out[i, j] = a[i, j]"),
            shape="8, 4",
            out='T.Buffer((8, 3), "float32")',
        ),
        _kernel("extern", _EACH, "    out[i] = a[i]", 'T.evaluate(T.call_extern("int32", "look", a.data))'),
        _kernel("laid_out", 'T.func_attr({"layout_free_buffers": [0]})', _EACH, "    out[i] = a[i]"),
    )
)
KERNELS = {v.name_hint: f for v, f in tvm.script.from_source(SOURCE).functions_items()} | {
    name: te.create_prim_func([*tensors], index_dtype_override="int64").with_attr("global_symbol", name)
    for name, tensors in COMPUTED.items()
}
MODULE = tvm.IRModule(KERNELS)


def can_overlay(name: str, inputs: set[int], output: int) -> bool:
    """Whether a call with tensors of the extents that the kernel declares is proved to be in step."""
    kernel = extract_kernel(name, KERNELS[name])
    arguments = [
        Var(f"p{i}", TensorType(shape=p.shape, dtype=p.dtype))
        if isinstance(p, KernelBuffer) and p.shape is not None and p.dtype is not None
        else Var("at", ScalarType(value=symbol("at"), dtype=None))
        for i, p in enumerate(kernel.parameters)
    ]
    call = CallKernel(var=Var("call", TupleType(fields=())), kernel=name, arguments=tuple(arguments))
    program = Program(name="module", functions={}, kernels={name: kernel})
    overlay = Overlay(inputs=frozenset(inputs), output=output)
    return subject.can_overlay(MODULE, program, Prover(), call, overlay, Domain(lower={"at": INT64_MIN}))


@pytest.mark.parametrize(
    ("name", "inputs", "output", "may"),
    [
        ("axpy", {0}, 2, True),
        ("axpy", {1}, 2, True),
        ("axpy", {0, 1}, 2, True),
        ("rows", {0}, 1, True),  # what the sums need is read before
        ("append", {0}, 3, True),
        ("append", {1}, 3, False),
        ("swapped", {0}, 1, True),
        ("later", {0}, 2, True),  # the first loop is over, the second reads in step
        ("later", {0}, 1, False),
        ("spread", {0}, 1, True),  # what is read again was written over with itself
        ("part", {0}, 1, True),  # what is written over is read by none
        ("counted", {0}, 1, True),  # an extent that the input alone tells
        ("laid_out", {0}, 1, True),  # an attribute that counts parameters
        ("flip", {0}, 1, False),
        ("turn", {0}, 1, False),
        ("twice", {0}, 1, False),  # the second round reads what the first has written
        ("again", {0}, 1, False),
        ("total", {0}, 1, False),
        ("between", {0}, 1, False),
        ("gather", {0}, 1, False),
        ("narrow", {0}, 1, False),
        ("wide", {0}, 1, False),  # the same index is another place
        ("extern", {0}, 1, False),
    ],
)
def test_what_may_be_written_over(name: str, inputs: set[int], output: int, may: bool) -> None:
    assert can_overlay(name, inputs, output) is may
    if may:
        made = in_place(KERNELS[name], [Overlay(inputs=frozenset(inputs), output=output)])
        assert made is not None
        read = extract_kernel(name, made).parameters
        assert not any(isinstance(one := read[index], KernelBuffer) and one.reads for index in inputs)


def numbers(rows: int, columns: int | None) -> np.ndarray:
    source = np.random.default_rng(rows)
    return source.random((rows,) if columns is None else (rows, columns), dtype="float32")


@pytest.mark.parametrize("name", ["axpy", "rows", "append", "longer", "swapped", "spread", "counted"])
def test_the_same_numbers_in_one_memory(name: str) -> None:
    """The input is given by the pointer that the output has, too."""
    kernel = KERNELS["append" if name == "longer" else name]
    over = in_place(kernel, [Overlay(inputs=frozenset({0}), output=len(kernel.params) - 1)])
    assert over is not None
    made = over.with_attr("global_symbol", "over")
    built = tvm.compile(tvm.IRModule({kernel.attrs["global_symbol"]: kernel, "over": made}), target="llvm")
    columns = None if name == "counted" else 8
    a, new = numbers(8 + 5 * (name in ("counted", "longer")), columns), numbers(1, 8)
    memory, out = tvm.runtime.tensor(a), tvm.runtime.tensor(np.zeros_like(a[:8]))
    view = memory._create_view(out.shape)
    more = {"axpy": [tvm.runtime.tensor(numbers(8, 8))]}.get(name, [])
    if name in ("append", "longer"):
        more = [tvm.runtime.tensor(new), 5]
    built[kernel.attrs["global_symbol"]](tvm.runtime.tensor(a), *more, out)
    built["over"](memory, *more, view)
    assert memory.numpy()[:8].tobytes() == out.numpy().tobytes()
    assert memory.numpy()[8:].tobytes() == a[8:].tobytes()


def test_extents_that_a_kernel_compares_are_compared_as_before() -> None:
    over = in_place(KERNELS["swapped"], [Overlay(inputs=frozenset({0}), output=1)])
    assert over is not None
    built = tvm.compile(over.with_attr("global_symbol", "over"), target="llvm")
    short, whole = (tvm.runtime.tensor(numbers(rows, 8)) for rows in (7, 8))
    with pytest.raises(ValueError, match="shape"):
        built["over"](short, whole)
