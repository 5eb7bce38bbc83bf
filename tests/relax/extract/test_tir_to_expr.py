"""Scalar expressions of TVM have exactly the values of their forms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import sym, tirx
from tvm.ir.prim import expr as prim

from symalloc.relax.extract.tir_to_expr import NotASizeError, TirToExpr
from symalloc.size.choice import evaluated_divisors
from symalloc.size.condition import Condition, eq
from symalloc.size.expr import Expr, floordiv, mod, symbol
from tests.scale import tries

VARS = A, B = tirx.Var("a", "int64"), tirx.Var("b", "int64")
ANALYZER = sym.Analyzer()
literal = partial(prim.IntImm, "int64")


def resolve(var: Any) -> Expr:
    return symbol(str(var.name))


def value(node: Any, binding: dict[str, int]) -> int:
    """What TVM itself computes, by substitution and constant folding."""
    known = tvm_ffi.structural.structural_map(node, ((tirx.Var, lambda var: literal(binding[var.name])),))
    folded = ANALYZER.simplify(known)
    assert isinstance(folded, tirx.IntImm), folded
    return int(folded.value)


def compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    divisors, amounts = st.integers(-7, 7).filter(bool).map(literal), st.integers(0, 5).map(literal)
    kinds = st.sampled_from([prim.LT, prim.LE, prim.GT, prim.GE, prim.EQ, prim.NE])
    conditions = st.builds(lambda kind, a, b: kind(a, b), kinds, inner, inner)
    return st.one_of(
        *(st.builds(kind, inner, inner) for kind in (prim.Add, prim.Sub, prim.Mul, prim.Min, prim.Max)),
        *(st.builds(kind, inner, divisors) for kind in (prim.FloorDiv, prim.FloorMod, prim.Div, prim.Mod)),
        *(st.builds(kind, inner, amounts) for kind in (prim.LShift, prim.RShift)),
        st.builds(prim.Select, conditions, inner, inner),
        st.builds(lambda test, a, b: tirx.if_then_else(prim.Not(test), a, b), conditions, inner, inner),
    )


expressions = st.recursive(st.integers(-9, 9).map(literal) | st.sampled_from(VARS), compound, max_leaves=8)


@pytest.mark.parametrize("least", [-30, 0])
@given(expressions, st.data())
@settings(max_examples=tries(90, 1800))
def test_form_has_the_value_that_tvm_computes(least: int, node: Any, data: st.DataObject) -> None:
    binding = {name: data.draw(st.integers(least, 30)) for name in "ab"}
    form = TirToExpr(resolve, nonnegative=lambda _: least == 0)
    assert form.expr(node).evaluate(binding) == value(node, binding)


def truncated(number: int, divisor: int) -> int:
    return abs(number) // abs(divisor) * (1 if number * divisor > 0 else -1)


def lowered_to_shift(divisor: int) -> Any:
    """tirx.LowerIntrin makes this of a division whose divisor is positive."""
    rest = prim.Mod(A, literal(divisor))
    return prim.Div(A, literal(divisor)) + prim.RShift(rest, literal(63))


def lowered_to_let(divisor: int) -> Any:
    """And this of a remainder whose divisor is negative."""
    rest = tirx.Var("rest", "int64")
    chosen = prim.Select(prim.LE(rest, literal(0)), rest, rest + literal(divisor))
    return prim.Let(rest, prim.Mod(A, literal(divisor)), chosen)


Both = Callable[[int, int], int]
MASKS = (0, 1, 5, 7, 63, 0b1011010, -1, -3, -8, -64)
# what TVM folds not at all, or not for negative numbers: the value is Python's
UNFOLDED: list[tuple[Any, Both]] = [
    (prim.Div(A, B), truncated),
    (prim.Mod(A, B), lambda a, b: a - b * truncated(a, b)),
    (lowered_to_shift(5), lambda a, b: a // 5),
    (lowered_to_let(-7), lambda a, b: a % -7),
    *((prim.RShift(A, literal(bits)), lambda a, b, bits=bits: a >> bits) for bits in (0, 1, 31, 62, 63)),
    *((prim.FloorDiv(A, literal(by)), lambda a, b, by=by: a // by) for by in (-1, -3, -64)),
    *((prim.FloorMod(A, literal(by)), lambda a, b, by=by: a % by) for by in (-1, -3, -64)),
    *((prim.BitwiseAnd(A, literal(mask)), lambda a, b, mask=mask: a & mask) for mask in MASKS),
    *((prim.BitwiseOr(literal(mask), A), lambda a, b, mask=mask: a | mask) for mask in MASKS),
    *((prim.BitwiseXor(A, literal(mask)), lambda a, b, mask=mask: a ^ mask) for mask in MASKS),
]


def test_what_tvm_does_not_fold_has_the_value_that_python_computes() -> None:
    random = Random(0)
    some = [random.randrange(-(2**40), 2**40) for _ in range(tries(30, 600))]
    for node, expected in UNFOLDED:
        form = TirToExpr(resolve).expr(node)
        for a in (*range(-12, 13), -(2**63), 2**63 - 1, *some):
            for b in (-4, -1, 1, 3) if "b" in form.symbols else (1,):
                assert form.evaluate({"a": a, "b": b}) == expected(a, b), (node, a, b)


def test_truncation_is_folded_where_nothing_is_negative() -> None:
    form = TirToExpr(resolve, nonnegative=lambda _: True)
    a = symbol("a")
    assert form.expr(prim.Div(A, literal(4))) == floordiv(a, 4)
    assert form.expr(prim.Mod(A + 3, literal(4))) == mod(a + 3, 4)


def test_negative_constant_divisors_are_turned_round() -> None:
    """`b - b % -3` is how LegalizeOps rounds up; the quotient's divisor is 3, of which nothing is asked."""
    form = TirToExpr(resolve)
    assert not eq(*(form.expr(kind(A, literal(-3))) for kind in (prim.FloorDiv, prim.FloorMod))).divisors


def condition(node: Any, flag: Condition | None = None) -> Condition:
    return TirToExpr(resolve, lambda _: flag).condition(node)


def test_conditions() -> None:
    a, b, three = A, B, literal(3)
    cases: list[tuple[Any, Callable[[int, int], bool]]] = [
        (prim.LT(a, b), lambda x, y: x < y),
        (prim.And(prim.LE(a, b), prim.NE(b, three)), lambda x, y: x <= y and y != 3),
        (prim.Or(prim.EQ(a, three), prim.Not(prim.GE(a, b))), lambda x, y: x == 3 or x < y),
        (prim.EQ(prim.LT(a, three), prim.LT(b, three)), lambda x, y: (x < 3) == (y < 3)),
        (prim.NE(prim.LT(a, three), prim.LT(b, three)), lambda x, y: (x < 3) != (y < 3)),
        (prim.Select(prim.GT(a, b), prim.GT(b, three), prim.LE(b, three)), lambda x, y: (y > 3) == (x > y)),
        (tirx.likely(prim.GT(a, b)), lambda x, y: x > y),
        (prim.Cast("bool", a), lambda x, y: x != 0),
        (prim.IntImm("bool", 1), lambda x, y: True),
    ]
    for node, expected in cases:
        found = condition(node)
        for x in range(6):
            for y in range(6):
                assert found.evaluate({"a": x, "b": y}) is expected(x, y), (node, x, y)


def test_the_whole_test_of_a_choice_is_evaluated() -> None:
    """Compiled code evaluates both sides of an `and`, but one side of a choice."""
    a, b, zero = A, B, literal(0)
    guarded = prim.And(prim.GT(b, zero), prim.GT(prim.FloorDiv(a, b), zero))
    for node, divisors in (
        (prim.Select(prim.GT(b, zero), prim.FloorDiv(a, b), a), ()),
        (prim.Select(prim.GT(a, zero), prim.FloorDiv(a, b), a), ("(b if a >= 1 else 1)",)),
        (tirx.if_then_else(prim.GT(a, zero), prim.FloorDiv(a, b), prim.FloorMod(a, b)), ("b",)),
        (prim.Select(guarded, a, b), ("b",)),
    ):
        assert tuple(map(str, evaluated_divisors([TirToExpr(resolve).expr(node)]))) == divisors


def test_boolean_variables() -> None:
    flag = tirx.Var("c", "bool")
    known = condition(prim.LT(A, B))
    assert condition(flag, known) == known
    with pytest.raises(NotASizeError, match="`c`"):
        condition(flag)


def test_casts_that_keep_the_value() -> None:
    form = TirToExpr(resolve, nonnegative=lambda name: name == "a")
    small = tirx.Var("s", "int32")
    assert form.expr(prim.Cast("int64", small)) == symbol("s")
    assert form.expr(prim.Cast("int32", literal(7))) == 7
    assert form.expr(prim.Cast("int64", prim.LT(A, B))).evaluate({"a": 1, "b": 2}) == 1


@pytest.mark.parametrize(
    "node",
    [
        prim.Cast("int32", A),
        prim.Cast("uint64", tirx.Var("s", "int32")),
        prim.Cast("float32", A),
        prim.FloatImm("float32", 1.0),
        prim.LShift(A, B),
        prim.RShift(A, literal(64)),
        prim.RShift(A, literal(-1)),
        prim.RShift(tirx.Var("i", "int32"), prim.IntImm("int32", 32)),
        prim.RShift(tirx.Var("u", "uint64"), prim.IntImm("uint64", 63)),
        prim.BitwiseOr(A, B),
        prim.BitwiseAnd(A, B),
        prim.BitwiseXor(A, literal(0b1010101010)),
        prim.LT(A, B),
        tirx.Var("f", "float32"),
        tirx.Var("h", "handle"),
        tirx.ceil(tirx.Var("f", "float32")),
    ],
)
def test_what_has_no_exact_form(node: Any) -> None:
    with pytest.raises(NotASizeError):
        TirToExpr(resolve).expr(node)


def test_int64_limits() -> None:
    assert TirToExpr(resolve).expr(tirx.max_value("int64")) == 2**63 - 1
    lowest = prim.Min(A, tirx.min_value("int64"))
    assert TirToExpr(resolve).expr(lowest).evaluate({"a": 5}) == -(2**63)
    for up_to_the_end in (prim.Min(A, tirx.max_value("int64")), prim.Max(tirx.min_value("int64"), A)):
        assert TirToExpr(resolve).expr(up_to_the_end) == symbol("a")
