"""What VMShapeLower and ComputePrimValue make of sizes is read back as it was before."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from symalloc.program import ir as m
from symalloc.program.operands import instructions_of
from symalloc.program.types import ShapeType, TensorType
from symalloc.relax.extract import extract
from symalloc.size.condition import eq
from symalloc.size.expr import constant, floordiv, symbol
from tests.models.zoo import MODELS
from tests.relax.passes.staged import stages_of

Read = Callable[[str], m.Program]
N = symbol("n")
HEAP = """
        @T.prim_func
        def sizes(H: T.Buffer((T.int64(4),), "int64")):
            H[T.int64(1)] = H[T.int64(0)] * T.int64(8)
            H[T.int64(0)] = H[T.int64(0)] + T.int64(1)
            H[T.int64(2)] = H[T.int64(0)] // T.int64(4)

        @R.function(pure=False)
        def main(
            x: R.Tensor(("n",), "float32"), y: R.Tensor(ndim=2, dtype="float32"), c: R.Tensor((), "bool")
        ):
            cls = Module
            heap = R.call_builtin_with_ctx(
                "vm.builtin.alloc_shape_heap", (R.prim_value(4),), ty_args=(R.Tensor(dtype="int64", ndim=1),)
            )
            {}
            return x
"""


def body(program: Read, *lines: str) -> list[m.Instruction]:
    text = HEAP.format("\n            ".join(lines))
    return list(instructions_of(program(text).functions["main"].body))


def packed(var: str, name: str, arguments: str, result: str = "R.Tuple") -> str:
    return f'{var} = R.call_packed("vm.builtin.{name}", {arguments}, ty_args=({result},))'


MATCH = packed("_", "match_shape", 'x, heap, 1, 1, 0, R.str("")')
SHAPE = packed("s", "make_shape", "heap, 3, 1, 0, 1, 1, 1, 2", "R.Shape(ndim=3)")


def shape_of(instructions: list[m.Instruction], name: str = "s") -> object:
    (found,) = [i.var.type for i in instructions if i.var.name == name]
    return found.values if isinstance(found, ShapeType) else found


STORED = (N + 1, 8 * N, floordiv(N + 1, 4))
IF = ("if c:", "    u = cls.sizes(heap)", "else:")


@pytest.mark.parametrize(
    ("between", "stored"),
    [
        (("_1 = cls.sizes(heap)",), STORED),
        ((*IF, "    u = cls.sizes(heap)"), STORED),
        ((*IF, "    u = R.tuple()"), None),
        (("_1 = cls.sizes(heap)", 'u = R.call_packed("other", heap, ty_args=(R.Tuple,))'), None),
    ],
    ids=["in order", "branches that store alike", "branches that do not", "who knows what another changes"],
)
def test_what_is_stored_is_known(program: Read, between: tuple[str, ...], stored: object) -> None:
    assert shape_of(body(program, MATCH, *between, SHAPE)) == stored


@pytest.mark.parametrize(("inner", "known"), [("T.evaluate(0)", True), ("H[T.int64(3)] = T.int64(1)", False)])
def test_a_function_of_sizes_may_check_them(
    program: Read, inner: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = "H[T.int64(1)] = H[T.int64(0)] * T.int64(8)"
    check = f"if H[T.int64(0)] > T.int64(8):\n                {inner}\n            "
    monkeypatch.setitem(globals(), "HEAP", HEAP.replace(store, check + store))
    found = shape_of(body(program, MATCH, "_1 = cls.sizes(heap)", SHAPE))
    assert found == (STORED if known else None)


def test_what_is_stored_later_is_not_known_earlier(program: Read) -> None:
    found = body(program, MATCH, SHAPE, "_1 = cls.sizes(heap)")
    assert shape_of(found) is None
    assert any(isinstance(i, m.NotUnderstood) and "slot of the shape heap" in i.what for i in found)


def test_an_extent_that_nothing_tells_becomes_a_symbol(program: Read) -> None:
    match = packed("_", "match_shape", 'y, heap, 2, 1, 0, 3, 0, R.str("")')
    found = body(program, match, packed("s", "make_shape", "heap, 1, 1, 0", "R.Shape(ndim=1)"))
    (cast,) = [i for i in found if isinstance(i, m.MatchCast)]
    y = symbol("y_0")
    assert isinstance(cast.target, TensorType) and cast.target.shape == (y, y)
    assert cast.defines == {"y_0"} and not cast.returns
    assert shape_of(found) == (y,)


def test_scalars_go_through_the_heap(program: Read) -> None:
    found = body(
        program,
        MATCH,
        "_1 = cls.sizes(heap)",
        packed("k", "make_prim_value", "heap, 1, 1", 'R.Prim("int64")'),
        packed("_2", "match_prim_value", 'k, heap, 1, 3, R.str("")'),
        packed("_3", "match_prim_value", 'k, heap, 3, 2, R.str("")'),
        packed("s", "make_shape", "heap, 2, 1, 3, 0, 7", "R.Shape(ndim=2)"),
    )
    assert shape_of(found) == (8 * N, constant(7))
    assert [i.condition for i in found if isinstance(i, m.Assert)][-1] == eq(8 * N, floordiv(N + 1, 4))


@pytest.mark.parametrize("arguments", ["heap, 1, 1, 4", "heap, 1, 1, -1", "heap, 2, 0, 3"])
def test_calls_that_make_no_sense(program: Read, arguments: str) -> None:
    found = body(program, MATCH, packed("s", "make_shape", arguments, "R.Shape(ndim=1)"))
    assert any(isinstance(i, m.NotUnderstood) for i in found)


# -- real modules ------------------------------------------------------------------------------------------

NAMES = ("mlp_dynamic_batch", "branches", "tuple_through_function", "recursion", "unique", "append_to_cache")


def memory(program: m.Program) -> Iterator[tuple[object, ...]]:
    """The sizes, offsets and shapes of all storages and tensors, and what kernels are called with."""
    for name, function in sorted(program.functions.items()):
        for made in instructions_of(function.body):
            match made:
                case m.AllocStorage():
                    yield name, made.var.name, made.size
                case m.AllocTensor():
                    yield name, made.var.name, made.offset, made.shape
                case m.CallKernel():
                    known = (getattr(each, "type", each) for each in made.arguments)
                    yield name, made.kernel, *(getattr(k, "shape", getattr(k, "value", None)) for k in known)


@pytest.mark.parametrize("name", NAMES)
def test_sizes_offsets_and_shapes_stay_the_same(name: str) -> None:
    kept = stages_of(MODELS[name].build(), first="LowerRuntimeBuiltin")
    before, *later = (extract(stage.mod, name="Module", stage=stage.stage) for stage in kept)
    assert [program.stage for program in later] == ["ComputePrimValue", "VMShapeLower", "AttachGlobalSymbol"]
    for program in later:
        assert list(memory(program)) == list(memory(before))
