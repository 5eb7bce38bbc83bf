"""Bindings that are read natively: the same program as read one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import tvm
from tvm import relax

from symalloc.program import ir as m
from symalloc.relax.extract import extract, plain_bindings
from symalloc.relax.extract.plain_bindings import PlainBindings
from tests.pool.library import need_native

ODD = """
    @T.prim_func
    def kernel(x: T.handle, y: T.handle, k: T.int64):
        n = T.int64()
        a = T.match_buffer(x, (n,), "float32")
        b = T.match_buffer(y, (n,), "float32")
        for i in range(n):
            b[i] = a[i]

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32"), s: R.Prim("int64"), y: R.Tensor(ndim=1), z: R.Tensor(("k",))):
        n = T.int64()
        k = T.int64()
        a = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        b = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        c = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(0), R.str("shared"))
        d = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float16"), R.prim_value(0), R.str("global"))
        e = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(1), R.str("global"))
        f = R.builtin.alloc_tensor(R.shape([n, 4]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        g = R.builtin.alloc_tensor(R.shape([n, n]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        h = R.builtin.alloc_tensor(R.shape([4, 4]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        u = R.builtin.alloc_tensor(
            R.shape([T.shift_left(n, k)]), R.dtype("float32"), R.prim_value(0), R.str("global")
        )
        _0 = Module.kernel(x, a, k)
        _1 = Module.kernel(x, b, T.int64(3))
        _2 = Module.kernel(a, R.const([1.0, 2.0], "float32"), n * 2)
        _3 = Module.kernel(a, x, s)
        _4 = Module.kernel(x, x, n)
        second: R.Tensor((n,), "float32") = a
        known: R.Tensor(dtype="float32", ndim=1) = a
        third = y
        storage = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        other = storage
        t = R.memory.alloc_tensor(other, R.prim_value(0), R.shape([16]), R.dtype("float32"))
        last = t
        _5 = Module.kernel(last, known, k)
        return (second, third)
"""
LAYERS = """
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
        with R.dataflow():
            a = R.nn.relu(R.matmul(x, w))
            b = R.nn.relu(R.matmul(a, w))
            c = R.concat([a, b], axis=1)
            d = R.add(R.strided_slice(c, axes=[1], begin=[0], end=[8]), R.const(1, "float32"))
            R.output(d)
        return d
"""


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], tuple[str, str, Counter[str]]]:
    """The texts of a module read natively and in Python, and how many bindings were, by kind."""
    need_native()
    plain: Counter[str] = Counter()
    reading = PlainBindings.read

    def counted(
        self: PlainBindings, bindings: Iterable[Any], read_other: Callable[[Any], None], *, handles: bool
    ) -> None:
        made = self.context.out
        begin, others = len(made), set[int]()

        def note(binding: Any) -> None:
            plain["NoneType"] += 1
            before = len(made)
            read_other(binding)
            others.update(range(before, len(made)))

        reading(self, bindings, note, handles=handles)
        plain.update(type(made[i]).__name__ for i in range(begin, len(made)) if i not in others)

    def read(module: Any) -> m.Program:
        return extract(module, name="Module", stage="CallTIRRewrite", handles=True)

    def run(module: Any) -> tuple[str, str, Counter[str]]:
        monkeypatch.setattr(plain_bindings, "FEW", 1)
        monkeypatch.setattr(PlainBindings, "read", counted)
        natively = read(module)
        monkeypatch.setattr(plain_bindings, "FEW", 1 << 30)
        one_by_one = read(module)
        assert _addresses(natively) == _addresses(one_by_one)
        return repr(natively), repr(one_by_one), plain

    return run


def _addresses(program: m.Program) -> list[int | None]:
    made = program.functions["main"].body.instructions
    return [None if i.handle is None else i.handle.__chandle__() for i in made]  # type: ignore[attr-defined]


def test_what_is_odd_is_read_alike(
    parse: Callable[[str], Any], both: Callable[[Any], tuple[str, str, Counter[str]]]
) -> None:
    natively, one_by_one, plain = both(parse(ODD))
    assert natively == one_by_one
    assert plain == {"AllocFresh": 8, "CallKernel": 5, "Alias": 3, "NoneType": 6}


@pytest.mark.parametrize("further", [False, True], ids=["in front of the planner", "with a shape heap"])
def test_what_tvm_lowers_is_read_alike(
    further: bool, parse: Callable[[str], Any], both: Callable[[Any], tuple[str, str, Counter[str]]]
) -> None:
    natively, one_by_one, plain = both(_lowered(parse(LAYERS), further))
    assert natively == one_by_one
    assert plain["CallKernel"] >= 7 or further


def _lowered(module: Any, further: bool) -> Any:
    steps: Sequence[Any] = (
        relax.transform.LegalizeOps(),
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
    )
    if further:
        steps = (
            *steps,
            relax.transform.LowerAllocTensor(),
            relax.transform.KillAfterLastUse(),
            relax.transform.LowerRuntimeBuiltin(),
            relax.transform.ComputePrimValue(),
            relax.transform.VMShapeLower(),
        )
    with tvm.target.Target("llvm"):
        for step in steps:
            module = step(module)
    return module


def test_few_bindings_are_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch, parse: Callable[[str], Any]
) -> None:
    monkeypatch.setattr(PlainBindings, "read", None)  # which would fail
    program = extract(
        _lowered(parse(LAYERS[: LAYERS.index("b = ")] + "R.output(a)\n        return a"), False), name="M"
    )
    assert len(program.functions["main"].body.instructions) < plain_bindings.FEW
