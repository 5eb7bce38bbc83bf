"""Scalar expressions of TVM have exactly the values of their forms."""

from __future__ import annotations

from collections.abc import Callable
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

NAMES = ("a", "b")
VARS = {name: tirx.Var(name, "int64") for name in NAMES}
ANALYZER = sym.Analyzer()


def resolve(var: Any) -> Expr:
    return symbol(str(var.name))


def value(node: Any, binding: dict[str, int]) -> int:
    """What TVM itself computes, by substitution and constant folding."""
    numbers = {name: tirx.IntImm("int64", number) for name, number in binding.items()}
    known = tvm_ffi.structural.structural_map(node, ((tirx.Var, lambda var: numbers[var.name]),))
    folded = ANALYZER.simplify(known)
    assert isinstance(folded, tirx.IntImm), folded
    return int(folded.value)


literals = st.integers(-9, 9).map(lambda n: prim.IntImm("int64", n))
divisors = st.integers(-7, 7).filter(bool).map(lambda n: prim.IntImm("int64", n))
symbols = st.sampled_from(NAMES).map(VARS.__getitem__)


def compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    both = st.tuples(inner, inner)
    by_constant = st.tuples(inner, divisors)
    amount = st.integers(0, 5).map(lambda n: prim.IntImm("int64", n))
    conditions = st.tuples(
        st.sampled_from([prim.LT, prim.LE, prim.GT, prim.GE, prim.EQ, prim.NE]), inner, inner
    )
    return st.one_of(
        *(
            both.map(lambda p, kind=kind: kind(*p))
            for kind in (prim.Add, prim.Sub, prim.Mul, prim.Min, prim.Max)
        ),
        *(
            by_constant.map(lambda p, kind=kind: kind(*p))
            for kind in (prim.FloorDiv, prim.FloorMod, prim.Div, prim.Mod)
        ),
        st.tuples(inner, amount).map(lambda p: prim.LShift(*p)),
        st.tuples(inner, amount).map(lambda p: prim.RShift(*p)),
        st.tuples(conditions, inner, inner).map(lambda p: prim.Select(p[0][0](*p[0][1:]), p[1], p[2])),
        st.tuples(conditions, inner, inner).map(
            lambda p: tirx.if_then_else(prim.Not(p[0][0](*p[0][1:])), p[1], p[2])
        ),
    )


expressions = st.recursive(literals | symbols, compound, max_leaves=8)


@pytest.mark.parametrize("least", [-30, 0])
@given(expressions, st.data())
@settings(max_examples=tries(90, 1800))
def test_form_has_the_value_that_tvm_computes(least: int, node: Any, data: st.DataObject) -> None:
    binding = {name: data.draw(st.integers(least, 30)) for name in NAMES}
    form = TirToExpr(resolve, nonnegative=lambda _: least == 0)
    assert form.expr(node).evaluate(binding) == value(node, binding)


@pytest.mark.parametrize("numerator", range(-9, 10))
@pytest.mark.parametrize("denominator", [-4, -1, 1, 3])
def test_truncating_division_by_a_symbol(numerator: int, denominator: int) -> None:
    a, b = VARS["a"], VARS["b"]
    binding = {"a": numerator, "b": denominator}
    quotient = TirToExpr(resolve).expr(prim.Div(a, b)).evaluate(binding)
    remainder = TirToExpr(resolve).expr(prim.Mod(a, b)).evaluate(binding)
    assert quotient == int(numerator / denominator)
    assert remainder == numerator - denominator * quotient


@given(st.integers(-(2**40), 2**40), st.sampled_from([0, 1, 5, 7, 63, 0b1011010, -1, -3, -8, -64]))
@settings(max_examples=tries(30, 600))
def test_bitwise_operations_with_constants(number: int, mask: int) -> None:
    """TVM folds none of these, so that the value is Python's."""
    variable, literal = VARS["a"], prim.IntImm("int64", mask)
    expected = {
        prim.BitwiseAnd: number & mask,
        prim.BitwiseOr: number | mask,
        prim.BitwiseXor: number ^ mask,
    }
    for operation, value in expected.items():
        for node in (operation(variable, literal), operation(literal, variable)):
            assert TirToExpr(resolve).expr(node).evaluate({"a": number}) == value


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1, 31, 62, 63]))
@settings(max_examples=tries(30, 600))
def test_shifts_to_the_right_by_any_number_of_bits(number: int, amount: int) -> None:
    """TVM folds no shift of a negative number, so that the value is Python's, which rounds down, too."""
    node = prim.RShift(VARS["a"], prim.IntImm("int64", amount))
    assert TirToExpr(resolve).expr(node).evaluate({"a": number}) == number >> amount


@pytest.mark.parametrize("number", range(-12, 13))
def test_a_division_that_is_lowered_to_a_shift(number: int) -> None:
    """tirx.LowerIntrin makes this of `a // 5`, and a Let of `a % -7`."""
    a, five, rest = VARS["a"], prim.IntImm("int64", 5), tirx.Var("rest", "int64")
    quotient = prim.Div(a, five) + prim.RShift(prim.Mod(a, five), prim.IntImm("int64", 63))
    assert TirToExpr(resolve).expr(quotient).evaluate({"a": number}) == number // 5
    minus = prim.IntImm("int64", -7)
    chosen = prim.Select(prim.LE(rest, prim.IntImm("int64", 0)), rest, rest + minus)
    remainder = prim.Let(rest, prim.Mod(a, minus), chosen)
    assert TirToExpr(resolve).expr(remainder).evaluate({"a": number}) == number % -7


def test_truncation_is_folded_where_nothing_is_negative() -> None:
    form = TirToExpr(resolve, nonnegative=lambda _: True)
    a = symbol("a")
    assert form.expr(prim.Div(VARS["a"], prim.IntImm("int64", 4))) == floordiv(a, 4)
    assert form.expr(prim.Mod(VARS["a"] + 3, prim.IntImm("int64", 4))) == mod(a + 3, 4)


@pytest.mark.parametrize("divisor", [-1, -3, -64])
def test_negative_constant_divisors_are_turned_round(divisor: int) -> None:
    """`b - b % -3` is how LegalizeOps rounds up; the quotient's divisor is 3, of which nothing is asked."""
    form, literal = TirToExpr(resolve), prim.IntImm("int64", divisor)
    quotient = form.expr(prim.FloorDiv(VARS["a"], literal))
    remainder = form.expr(prim.FloorMod(VARS["a"], literal))
    assert not eq(quotient, remainder).divisors
    for number in range(-9, 10):
        assert quotient.evaluate({"a": number}) == number // divisor
        assert remainder.evaluate({"a": number}) == number % divisor


def condition(node: Any, flag: Condition | None = None) -> Condition:
    return TirToExpr(resolve, lambda _: flag).condition(node)


def test_conditions() -> None:
    a, b = VARS["a"], VARS["b"]
    three = prim.IntImm("int64", 3)
    cases: list[tuple[Any, Callable[[int, int], bool]]] = [
        (prim.LT(a, b), lambda x, y: x < y),
        (prim.And(prim.LE(a, b), prim.NE(b, three)), lambda x, y: x <= y and y != 3),
        (prim.Or(prim.EQ(a, three), prim.Not(prim.GE(a, b))), lambda x, y: x == 3 or x < y),
        (prim.EQ(prim.LT(a, three), prim.LT(b, three)), lambda x, y: (x < 3) == (y < 3)),
        (prim.NE(prim.LT(a, three), prim.LT(b, three)), lambda x, y: (x < 3) != (y < 3)),
        (
            prim.Select(prim.GT(a, three), prim.GT(b, three), prim.LT(b, a)),
            lambda x, y: y > 3 if x > 3 else y < x,
        ),
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
    a, b = VARS["a"], VARS["b"]
    zero = prim.IntImm("int64", 0)
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
    known = condition(prim.LT(VARS["a"], VARS["b"]))
    assert condition(flag, known) == known
    with pytest.raises(NotASizeError, match="`c`"):
        condition(flag)


def test_casts_that_keep_the_value() -> None:
    form = TirToExpr(resolve, nonnegative=lambda name: name == "a")
    small = tirx.Var("s", "int32")
    assert form.expr(prim.Cast("int64", small)) == symbol("s")
    assert form.expr(prim.Cast("int32", prim.IntImm("int64", 7))) == 7
    assert form.expr(prim.Cast("int64", prim.LT(VARS["a"], VARS["b"]))).evaluate({"a": 1, "b": 2}) == 1


@pytest.mark.parametrize(
    "node",
    [
        prim.Cast("int32", VARS["a"]),
        prim.Cast("uint64", tirx.Var("s", "int32")),
        prim.Cast("float32", VARS["a"]),
        prim.FloatImm("float32", 1.0),
        prim.LShift(VARS["a"], VARS["b"]),
        prim.RShift(VARS["a"], prim.IntImm("int64", 64)),
        prim.RShift(VARS["a"], prim.IntImm("int64", -1)),
        prim.RShift(tirx.Var("i", "int32"), prim.IntImm("int32", 32)),
        prim.RShift(tirx.Var("u", "uint64"), prim.IntImm("uint64", 63)),
        prim.BitwiseOr(VARS["a"], VARS["b"]),
        prim.BitwiseAnd(VARS["a"], VARS["b"]),
        prim.BitwiseXor(VARS["a"], prim.IntImm("int64", 0b1010101010)),
        prim.LT(VARS["a"], VARS["b"]),
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
    lowest = prim.Min(VARS["a"], tirx.min_value("int64"))
    assert TirToExpr(resolve).expr(lowest).evaluate({"a": 5}) == -(2**63)
    for up_to_the_end in (
        prim.Min(VARS["a"], tirx.max_value("int64")),
        prim.Max(tirx.min_value("int64"), VARS["a"]),
    ):
        assert TirToExpr(resolve).expr(up_to_the_end) == symbol("a")
