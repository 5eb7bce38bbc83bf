"""Forms emitted for TVM have the values that they had."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.ir.prim import expr as prim
from tvm.relax.utils import copy_with_new_vars

from symalloc.relax.emit.prim_builder import PrimBuilder
from symalloc.relax.extract.tir_to_expr import NotASizeError, TirToExpr
from symalloc.size.choice import maximum, minimum, select
from symalloc.size.condition import Condition, conjunction, disjunction, eq, le, ne
from symalloc.size.expr import Expr, constant, floordiv, mod, symbol
from tests.scale import tries

VARS = {name: tirx.Var(name, "int64") for name in ("a", "b")}
leaves = st.integers(-20, 20).map(constant) | st.sampled_from(["a", "b"]).map(symbol)


def conditions(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Condition]:
    simple = st.tuples(st.sampled_from([le, eq, ne]), inner, inner).map(lambda t: t[0](t[1], t[2]))
    joined = st.lists(simple, min_size=1, max_size=3)
    return simple | joined.map(conjunction) | joined.map(disjunction)


def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        *(st.builds(f, inner, inner) for f in (add, mul, minimum, maximum)),
        *(st.builds(f, inner, st.integers(1, 9)) for f in (floordiv, mod)),
        st.builds(select, conditions(inner), inner, inner),
    )


expressions = st.recursive(leaves, grow, max_leaves=8)
points = st.fixed_dictionaries({"a": st.integers(-40, 40), "b": st.integers(-40, 40)})


def form() -> TirToExpr:
    return TirToExpr(lambda var: symbol(str(var.name)))


@given(expressions, points)
@settings(max_examples=tries(75, 1500))
def test_back_and_forth(expr: Expr, point: dict[str, int]) -> None:
    node = PrimBuilder(dict(VARS))(expr)
    assert str(node.ty.dtype) == "int64"
    assert form().expr(node).evaluate(point) == expr.evaluate(point)


@given(conditions(expressions), points)
@settings(max_examples=tries(50, 1000))
def test_conditions_back_and_forth(condition: Condition, point: dict[str, int]) -> None:
    node: Any = PrimBuilder(dict(VARS)).condition(condition)
    assert str(node.ty.dtype) == "bool"
    assert form().condition(node).evaluate(point) == condition.evaluate(point)


def test_differences_read_as_differences() -> None:
    assert str(PrimBuilder(dict(VARS))(symbol("a") - symbol("b"))) == "a - b"
    assert str(PrimBuilder(dict(VARS)).condition(le(symbol("a") - symbol("b"), 0))) == "a <= b"


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(NotASizeError, match="int64"):
        PrimBuilder(dict(VARS))(symbol("a") * 2**64)
    with pytest.raises(KeyError):
        PrimBuilder(dict(VARS))(symbol("c"))


def test_choices_stand_in_types() -> None:
    """TVM copies no function whose types hold a call of if_then_else."""
    a, b = symbol("a"), symbol("b")
    nested = select(le(a, b), a, select(le(b, 8), maximum(a, select(le(a, 4), b, a)), 2 * b))
    param = relax.Var("x", relax.TensorType([PrimBuilder(dict(VARS))(nested)], "uint8"))
    (copied,) = copy_with_new_vars(relax.Function([param], param, param.ty)).params
    assert str(copied.ty) == str(param.ty)


@pytest.mark.parametrize("divided", [floordiv, mod])
def test_a_choice_that_spares_a_division_evaluates_one_side(divided: Callable[[Expr, Expr], Expr]) -> None:
    a, b = symbol("a"), symbol("b")
    spared = PrimBuilder(dict(VARS))(select(le(1, b), divided(a, b), a))
    assert getattr(spared.op, "name", None) == "prim.if_then_else"
    assert isinstance(PrimBuilder(dict(VARS))(select(le(1, b), divided(a, constant(3)), a)), prim.Select)


def test_what_expressions_share_is_built_once() -> None:
    build: Any = PrimBuilder(dict(VARS))
    shared = maximum(64 * symbol("a"), 8 * symbol("b"))
    assert build(floordiv(shared, 7)).a.same_as(build(floordiv(shared, 9)).a)
