"""Brute force over small boxes, and strategies for conditions: what the layers are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from hypothesis import strategies as st

from symalloc.prover.domain import Box
from symalloc.size.choice import maximum, minimum, select
from symalloc.size.condition import Condition, conjunction, disjunction, eq, le, lt, ne
from symalloc.size.expr import Expr, constant, floordiv, mod, round_up, symbol

NAMES = ("a", "b")


def points(box: Box) -> Iterator[dict[str, int]]:
    """Every point of `box`."""
    ranges = [range(box.lower[n], box.upper[n] + 1) for n in box.lower]
    return (dict(zip(box.lower, values, strict=True)) for values in product(*ranges))


def boxes(size: int = 7) -> st.SearchStrategy[Box]:
    """Boxes of the two symbols with up to `size + 1` values each."""
    side = st.tuples(st.integers(-4, 6), st.integers(0, size))
    return st.tuples(side, side).map(
        lambda sides: Box(
            {n: low for n, (low, _) in zip(NAMES, sides, strict=True)},
            {n: low + width for n, (low, width) in zip(NAMES, sides, strict=True)},
        )
    )


def polynomials() -> st.SearchStrategy[Expr]:
    """Polynomials in the symbols, of low degree."""
    return st.recursive(_leaves(), lambda inner: _sums(inner) | _products(inner), max_leaves=5)


def sizes(
    leaves: st.SearchStrategy[Expr] | None = None, most: int = 8, rounded_to: int | None = None
) -> st.SearchStrategy[Expr]:
    """Expressions with every kind of atom; divisors are positive constants up to `most`."""

    def extend(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        divisor = st.integers(1, most)
        return st.one_of(
            _sums(inner),
            _products(inner),
            st.builds(floordiv, inner, divisor),
            st.builds(mod, inner, divisor),
            *([] if rounded_to is None else [st.builds(round_up, inner, st.just(rounded_to))]),
            st.builds(minimum, inner, inner),
            st.builds(maximum, inner, inner),
            st.builds(lambda a, b, c, d: select(le(a, b), c, d), inner, inner, inner, inner),
        )

    return st.recursive(_leaves() if leaves is None else leaves, extend, max_leaves=6)


def conditions(expressions: st.SearchStrategy[Expr] | None = None) -> st.SearchStrategy[Condition]:
    """Relations of `expressions`, and small combinations of them."""
    inner = sizes() if expressions is None else expressions
    builders: list[Callable[[Expr, Expr], Condition]] = [le, lt, eq, ne]
    relation = st.one_of(*(st.builds(build, inner, inner) for build in builders))
    pair = st.tuples(relation, relation)
    return st.one_of(relation, relation, pair.map(conjunction), pair.map(disjunction))


def _leaves() -> st.SearchStrategy[Expr]:
    return st.sampled_from([symbol(n) for n in NAMES]) | st.integers(-9, 9).map(constant)


def _sums(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.builds(lambda a, b, c: a + c * b, inner, inner, st.integers(-4, 4))


def _products(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.builds(lambda a, b: a * b, inner, inner)
