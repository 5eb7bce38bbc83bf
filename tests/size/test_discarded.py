"""Divisions whose value does not matter: whoever reads them keeps that their divisor is at least 1."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.prover.prover import Prover
from symalloc.size.defined import holds
from symalloc.size.expr import Expr
from symalloc.size.parse import parse_condition
from tests.scale import tries

POINTS = [{"a": a, "n": n} for a in (-1, 0, 1, 5) for n in (-1, 0, 1, 2)]


@pytest.mark.parametrize(
    ("text", "fails_at"),
    [
        ("(a // n if a <= 3 else a // n) <= a", {"a": 0, "n": 0}),
        ("(4 if a // n <= 3 else 4) <= 4", {"a": 0, "n": 0}),
        ("(4 if a // n == a // n else 5) <= 5", {"a": 0, "n": 0}),
        ("(0*(a // n) if a >= 7 else 1) <= 1", {"a": 7, "n": 0}),
        ("(4 if a // n == 0 or 1 <= 2 else 5) <= 4", {"a": 0, "n": 0}),
        ("(4 if n <= 0 or a // n == 0 else 4) <= 4", None),
        ("(4 if n >= 1 and a // n == 0 else 5) <= 5", None),
        ("(4 if a // n == 0 and n >= 1 else 5) <= 5", {"a": 0, "n": 0}),
        ("min(a // n, a // n) - a // n == 0", {"a": 0, "n": 0}),
        ("(a // n if 1 <= 0 else 3) == 3", None),
        ("not a // n == a // n + 1", {"n": 0}),
    ],
)
def test_obligations_of_what_is_dropped(text: str, fails_at: dict[str, int] | None) -> None:
    proof = Prover().prove(parse_condition(text))
    point = proof.counterexample
    assert (point is None) is (fails_at is None)
    assert point is None or (point.get("a", 0), point["n"]) == (fails_at.get("a", 0), fails_at["n"])  # type: ignore[union-attr]


class UndefinedError(Exception):
    """A divisor below one."""


def _checked(divisor: int) -> int:
    if divisor < 1:
        raise UndefinedError
    return divisor


def _run(text: str, point: Mapping[str, int]) -> bool:
    """The meaning of one relation to Python: false where it divides by less than 1."""
    source = text.replace("[", "checked(").replace("]", ")")
    try:
        return bool(eval(source, {"checked": _checked, "min": min, "max": max, **point}))
    except UndefinedError:
        return False


def _texts() -> st.SearchStrategy[str]:
    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        test = st.builds("{} {} {}".format, inner, st.sampled_from(["<=", "==", "!="]), inner)
        tests = st.one_of(
            test, test, st.builds("({} {} {})".format, test, st.sampled_from(["and", "or"]), test)
        )
        return st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner),
            st.builds("({} {} [n])".format, inner, st.sampled_from(["//", "%"])),
            st.builds("({} {} [{} + 1])".format, inner, st.sampled_from(["//", "%"]), inner),
            inner.map("({0} - {0})".format),
            inner.map("(0*{})".format),
            st.builds("min({}, {})".format, inner, inner),
            st.builds("({} if {} else {})".format, inner, tests, inner),
            st.builds("({0} if {1} else {0})".format, inner, tests),
        )

    return st.recursive(st.sampled_from(["a", "n", "0", "3"]), extend, max_leaves=7)


@given(_texts(), st.sampled_from(["<=", "==", ">"]), _texts())
@settings(max_examples=tries(300, 6000))
def test_reads_as_python_evaluates(left: str, operator: str, right: str) -> None:
    text = f"{left} {operator} {right}"
    try:
        read = parse_condition(text.replace("[", "(").replace("]", ")"))
    except ValueError:  # a constant divisor below 1
        return
    meaning = holds(read, _unknown)
    for point in POINTS:
        assert meaning.evaluate(point) is _run(text, point), (text, point)


def _unknown(_divisor: Expr) -> bool:
    return False
