"""Certificates replay, guard sets shrink, points get small, batches are read and answered."""

from __future__ import annotations

import json

import pytest
import z3

from symalloc.prover.batch import BatchError, answer, proof_row, read_questions, summary
from symalloc.prover.domain import Box, Budget, Domain, Verdict
from symalloc.prover.prover import Prover, order
from symalloc.prover.smtlib import Solver, certificate
from symalloc.size.condition import disjunction, eq
from symalloc.size.expr import symbol
from symalloc.size.parse import parse_condition


@pytest.mark.parametrize(
    ("text", "assume", "expected"),
    [
        ("(n + 63)//64*64 >= n", (), "unsat"),
        ("n*m >= n", ("m >= 1",), "unsat"),
        ("min(n, m) <= max(n, 3)", (), "unsat"),
        ("n*m < n", ("m >= 1",), "unsat"),
        ("(n if n <= 8 else 8) <= 8", (), "unsat"),
        ("n % k < k", ("k >= 1",), "unsat"),
        ("n <= 4", ("n <= 3", "n >= 5"), "unsat"),
        ("4*m <= 16", (), "sat"),
        ("n % k < k", (), "sat"),
        ("n != 3 or m == -2", (), "sat"),
    ],
)
def test_certificate_replays(text: str, assume: tuple[str, ...], expected: str) -> None:
    constraint = parse_condition(text)
    domain = Domain(assumptions=tuple(map(parse_condition, assume)))
    proof = Prover().prove(constraint, domain)
    script = certificate(constraint, domain, proof)
    assert f"(set-info :status {expected})" in script
    solver = z3.Solver(ctx=z3.Context())
    solver.set("timeout", 20_000)
    solver.from_string(script)
    assert str(solver.check()) == expected


def test_strange_names_are_not_taken_for_each_other() -> None:
    names = ("a|b", "a_b", "a%7c;b", "a\\b", "größe", "a\nb", "a\0b", "a\udc80b")
    claim = disjunction(eq(symbol(name), number + 1) for number, name in enumerate(names))
    box = Box(dict.fromkeys(names, 0), dict.fromkeys(names, 9))
    wanted = [eq(symbol(name), number) for number, name in enumerate(names)]
    assert Solver(Budget()).ask(wanted, box) == {name: number for number, name in enumerate(names)}
    assert Solver(Budget()).ask([*wanted, claim], box) == "z3"


def test_points_are_ordered_by_the_largest_value_then_by_name() -> None:
    values = [(0, 2), (1, 0), (-1, 1), (-1, 0), (0, 0)]
    points = [{"b": b, "a": a} for a, b in values]
    assert sorted(points, key=order) == points[::-1]
    assert order({}) == (0, [])


def test_an_unproved_counterexample_is_not_called_the_smallest() -> None:
    constraint = parse_condition("n*n*m - 7*k*k <= 123456789123")
    rows = []
    for budget in (Budget(), Budget(z3_steps=0)):
        proof = Prover(budget).prove(constraint, Domain(default_lower=1))
        rows.append(proof_row(proof, proof.counterexample, proof.witness))
    assert [row["smallest"] for row in rows] == [True, False]
    assert rows[0]["counterexample"] == {"k": 1, "m": 4979, "n": 4980}
    assert not constraint.evaluate(rows[1]["counterexample"])


BATCH = [
    {"id": "a", "constraint": "4*m <= 16", "assume": ["k >= 3"], "label": "runtime-check"},
    {"id": "b", "constraint": "n >= 1", "label": "always-valid"},
    {"id": "c", "constraint": "0*n == 1", "lower_bounds": {"n": 5}, "label": "always-valid"},
]


def test_batch_is_answered_row_by_row() -> None:
    questions = read_questions(json.dumps(BATCH))
    prover = Prover()
    rows = [answer(q, prover)[0] for q in questions]
    assert [row["verdict"] for row in rows] == ["runtime-check", "always-valid", "always-invalid"]
    assert rows[0]["counterexample"] == {"k": 3, "m": 5}
    assert rows[0]["precondition"] == "m <= 4"
    assert rows[2]["counterexample"] == {"n": 5}
    line = summary(questions, rows, asked=0)
    assert "2 of 3 as labelled, 1 decided otherwise (c)" in line
    assert "z3 asked about 0.0%" in line
    assert summary([], [], 0) == "no constraints"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "not JSON"),
        ("{}", "not a list of constraints: Expected `array`"),
        ('[{"id": "x"}]', r"Object missing required field `constraint` - at `\$\[0\]`"),
        ('[{"id": "x", "constraint": "4*"}]', "entry `x`: syntax error"),
        (
            '[{"id": "x", "constraint": "n <= 1", "assume": "n"}]',
            r"Expected `array`, got `str` - at `\$\[0\].assume`",
        ),
        (
            '[{"id": "x", "constraint": "n <= 1", "lower_bounds": {"n": 1.5}}]',
            r"Expected `int`, got `float` - at `\$\[0\].lower_bounds",
        ),
    ],
)
def test_bad_batch(text: str, problem: str) -> None:
    with pytest.raises(BatchError, match=problem):
        read_questions(text)


@pytest.mark.parametrize("text", ["3 <= 2", "m >= 2*m + 1", "n <= 3", "k + n <= n and k >= 1"])
def test_always_invalid_comes_with_a_point_of_the_domain(text: str) -> None:
    assumptions = tuple(map(parse_condition, ("n >= 4", "n % 8 == 3", "k*k == 49")))
    domain = Domain(assumptions=assumptions)
    for explain in (False, True):
        prover = Prover()
        proof = prover.prove(parse_condition(text), domain, explain=explain)
        assert proof.verdict is Verdict.ALWAYS_INVALID
        assert proof.counterexample is not None
        point = prover.complete(proof.counterexample, domain)
        assert point is not None
        assert domain.contains(point)
        assert not parse_condition(text).evaluate({"m": 0, **point})


def test_a_symbol_without_values_empties_the_domain_of_others() -> None:
    domain = Domain(lower={"m": 5}, upper={"m": 4})
    assert Prover().prove(parse_condition("n >= n + 1"), domain).verdict is Verdict.VACUOUS
