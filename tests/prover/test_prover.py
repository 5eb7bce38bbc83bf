"""Verdicts, what comes with them, and what is remembered."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.prover.domain import INT64_MAX, INT64_MIN, Box, Budget, Domain, Proof, Verdict
from symalloc.prover.prover import Prover, order
from symalloc.prover.smtlib import FEWEST, Solver
from symalloc.size.choice import holds
from symalloc.size.condition import Condition
from symalloc.size.parse import parse_condition
from tests.prover.brute import boxes, conditions, points
from tests.prover.random_questions import contradictions, domain_of, plain, readable_question
from tests.scale import part, tries

DATA: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "constraints.json").read_text())
VALID, INVALID, CHECK = Verdict.ALWAYS_VALID, Verdict.ALWAYS_INVALID, Verdict.RUNTIME_CHECK

NUMBER_THEORY = ("nonlin-12", "nonlin-13", "nonlin-17", "far-04")
PRODUCTS_OF_QUOTIENTS = ("reshape-05", "divmod-42", "divmod-67", "align-16")
UNDECIDED = {*NUMBER_THEORY, *PRODUCTS_OF_QUOTIENTS}


def ask(text: str, *assume: str, least: int = 0, **bounds: Any) -> Proof:
    domain = Domain(default_lower=least, assumptions=tuple(map(parse_condition, assume)), **bounds)
    return Prover().prove(parse_condition(text), domain)


def test_rounded_sizes_are_compared_by_what_is_rounded() -> None:
    """Two rounded sums, one of which is part of the other: z3 does not find it within the budget."""
    sums = "64*((2616*b*n + 63)//64) + 1848*b*n <= 768*b*n + 128*((1848*b*n + 63)//64)"
    assert ask(sums).verdict is VALID


@pytest.fixture(scope="module")
def prover() -> Prover:
    return Prover()


@pytest.mark.parametrize("row", DATA, ids=lambda row: row["id"])
def test_labelled_constraint(row: dict[str, Any], prover: Prover) -> None:
    constraint = parse_condition(row["constraint"])
    domain = Domain(default_lower=1, assumptions=tuple(map(parse_condition, row["assume"])))
    proof = prover.prove(constraint, domain)
    expected = (CHECK, True) if row["id"] in UNDECIDED else (row["label"], False)
    assert (proof.verdict, proof.unknown) == expected
    _check_points(constraint, domain, proof)


def _check_points(constraint: Condition, domain: Domain, proof: Proof) -> None:
    for point, truth in ((proof.counterexample, False), (proof.witness, True)):
        if point is not None:
            assert domain.contains(point)
            assert constraint.evaluate(point) is truth
            assert proof.precondition is None or proof.precondition.evaluate(point) is truth


@pytest.mark.parametrize(
    ("text", "assume", "verdict"),
    [
        ("m*n >= 0", (), VALID),
        ("n // 4 <= n", (), VALID),
        ("n >= 1", (), CHECK),
        ("n >= 1", ("n != 0",), VALID),
        ("n == 16 or n == 32", ("n % 16 == 0", "n >= 1", "n < 48"), VALID),
        ("n <= 4", ("n <= 4 or n <= 3",), VALID),
        ("n <= 4", ("n <= 4 or n == 9",), CHECK),
        ("n == 9", ("n <= 4 or n == 9", "n >= 5"), VALID),
        ("n % 3 == 0", ("n % 2 == 0", "n == 3*k + 1"), INVALID),
        ("n <= 2**63 - 1", (), VALID),
        ("n <= 2**63 - 2", (), CHECK),
        ("4*n <= 2**65 - 4", (), VALID),
        ("4*n <= 2**65 - 5", (), CHECK),
        ("n >= 2**63", (), INVALID),
        ("min(n, max(m, k)) <= max(min(n, m), k)", (), VALID),
        ("max(n, m, k) == n", ("n >= m", "m >= k"), VALID),
        ("(n if n < m else m) == min(n, m)", (), VALID),
        ("((n // 3) // 5) // 7 == n // 105", (), VALID),
        ("n % 2 + n % 3 == 3", ("n % 6 == 5",), VALID),
    ],
)
def test_verdict(text: str, assume: tuple[str, ...], verdict: Verdict) -> None:
    proof = ask(text, *assume)
    assert (proof.verdict, proof.unknown) == (verdict, False)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("n % 4 >= 0", VALID),
        ("n // 4 * 4 <= n", VALID),
        ("n // 2 >= 0", CHECK),
        ("-n // 4 == -(n // 4)", CHECK),
        ("n*n >= n", VALID),
        ("n*m <= n*n + m*m", VALID),
        ("n >= -(2**63)", VALID),
    ],
)
def test_negative_values(text: str, verdict: Verdict) -> None:
    assert ask(text, least=INT64_MIN).verdict is verdict


@pytest.mark.parametrize(
    "assume",
    [
        ("n <= 4", "n >= 5"),
        ("2*n == 7",),
        ("n % 4 == 1", "n % 6 == 2"),
        ("n % 4 == 1", "n == 2*k"),
        ("n < m", "m < k", "k < n"),
        ("n <= 4", "k <= 3", "k >= 4"),
        ("n == n + 1",),
        ("min(n, m) > max(n, m)",),
    ],
)
def test_contradictory_assumptions_are_vacuous(assume: tuple[str, ...]) -> None:
    proof = ask("n <= 100", *assume)
    assert proof.verdict is Verdict.VACUOUS
    assert proof.reason is not None


@pytest.mark.parametrize(
    ("text", "assume", "counterexample"),
    [
        *((text, (), {"k": 0}) for text in ("n // k == n // k", "0*(n % k) == 0", "n // k <= n // k + 1")),
        *((text, ("k >= 1",), None) for text in ("n // k == n // k", "0*(n % k) == 0")),
        # a substitution folds its relation
        ("2*(8 % c) != a", ("a == 2*b + 1",), {"a": 1, "b": 0, "c": 0}),
        ("m == 0 or n % m < m", (), None),
        ("(n // m if m >= 1 else 0) <= n", (), None),
        ("k >= 1", ("n % k == 0",), None),  # which is defined where it holds
    ],
)
def test_obligations_of_divisors(
    text: str, assume: tuple[str, ...], counterexample: dict[str, int] | None
) -> None:
    proof = ask(text, *assume)
    assert proof.verdict is (VALID if counterexample is None else CHECK)
    assert proof.counterexample == counterexample


def test_case_of_a_choice_does_not_make_its_divisor_positive() -> None:
    """The branch `a >= 5 // a` holds a division that is not defined where the claim fails."""
    proof = ask("(a*a - 2*a) % (2*a - 3) != a + 1 or max(a, 5 // a) > a // 8", "a*a != 0", lower={"a": -3})
    assert (proof.verdict, proof.counterexample) == (CHECK, {"a": -1})


def test_divisor_that_can_be_zero_is_a_counterexample() -> None:
    proof = ask("n % m < m")
    assert proof.verdict is CHECK
    assert proof.counterexample == {"m": 0, "n": 0}
    assert str(proof.precondition) == "m >= 1"
    assert proof.reason == "the divisor `m` can be 0; a divisor must be at least 1"
    assert ask("n % m < m", "m >= 1").verdict is VALID


@pytest.mark.parametrize(
    ("text", "assume", "counterexample"),
    [
        ("4*m <= 16", (), {"m": 5}),
        ("4*b*s*h <= 4*b*s*1024", (), {"b": 1, "h": 1025, "s": 1}),
        ("m*n <= 16384", (), {"m": 128, "n": 129}),
        ("n != 123456789", (), {"n": 123456789}),
        ("n*n <= 10**18", (), {"n": 10**9 + 1}),
        ("n + m <= 10", ("n <= 9", "m <= 9"), {"m": 5, "n": 6}),
    ],
)
def test_smallest_counterexample(text: str, assume: tuple[str, ...], counterexample: dict[str, int]) -> None:
    proof = ask(text, *assume)
    assert proof.counterexample == counterexample
    assert proof.smallest


@pytest.mark.parametrize(
    ("text", "assume", "precondition"),
    [
        ("4*m <= 16", (), "m <= 4"),
        ("4*b*s*h <= 4*b*s*1024", ("b >= 1", "s >= 1"), "h <= 1024"),
        ("(n // 4)*4 == n", (), "n % 4 == 0"),
        ("n % 4 <= 2", (), "n % 4 <= 2"),
        ("4*b*s <= 1024", (), "b*s <= 256"),
        ("max(n, 1024) <= 1024", (), "n <= 1024"),
        ("max(n, m) <= k", (), "m <= k and n <= k"),
        ("(4*m + 4095) // 4096 * 4096 <= 4096", (), "m <= 1024"),
        ("4*m % 256 == 0", (), "m % 64 == 0"),
        ("n // 8 >= 1", (), "n >= 8"),
        ("n*n <= 100", (), "n <= 10"),
        ("n <= 4 and m >= 0 and k <= 9", ("k <= 3",), "n <= 4"),
    ],
)
def test_precondition(text: str, assume: tuple[str, ...], precondition: str) -> None:
    assert str(ask(text, *assume).precondition) == precondition


@given(conditions(), st.lists(conditions(), max_size=2), boxes(5))
@settings(max_examples=tries(125, 2500))
def test_agrees_with_brute_force(constraint: Condition, assume: list[Condition], there: Box) -> None:
    domain = Domain(lower=there.lower, upper=there.upper, assumptions=tuple(assume))
    proof = Prover().prove(constraint, domain)
    truths = {constraint.evaluate(p) for p in points(there) if all(a.evaluate(p) for a in assume)}
    expected = {frozenset(): Verdict.VACUOUS, frozenset({True}): VALID, frozenset({False}): INVALID}
    assert proof.unknown or proof.verdict is expected.get(frozenset(truths), CHECK)
    for point in points(there) if proof.precondition is not None else ():
        if all(a.evaluate(point) for a in assume):
            assert proof.precondition.evaluate(point) is constraint.evaluate(point)


@pytest.mark.parametrize("seed", range(4))
def test_brute_force_does_not_contradict_proofs(seed: int) -> None:
    rng, prover = random.Random(seed), Prover()
    smallest = 0
    for _ in range(100):
        question = readable_question(rng)
        proof = prover.prove(parse_condition(plain(question.constraint)), domain_of(question))
        assert list(contradictions(question, proof, 26 if question.complete else 4)) == [], question
        smallest += bool(proof.counterexample) and proof.smallest
    assert smallest > 20


def test_answers_do_not_depend_on_what_z3_was_asked_before() -> None:
    """Each question is answered as in a fresh process, after others and again."""

    def answers(rows: list[dict[str, Any]]) -> dict[str, tuple[object, ...]]:
        prover, found = Prover(), {}
        for row in rows:
            domain = Domain(default_lower=1, assumptions=tuple(map(parse_condition, row["assume"])))
            proof = prover.prove(parse_condition(row["constraint"]), domain)
            found[row["id"]] = (proof.verdict, proof.decided_by, proof.counterexample, proof.witness)
        assert prover.solver.asked > 20
        return found

    rows = part(DATA, 2)
    forwards = answers(rows)
    assert answers(rows[::-1]) == answers(rows) == forwards


def test_a_short_answer_is_the_same_behind_a_full_one() -> None:
    constraint, prover = parse_condition("b*n + b*p == b*t"), Prover()
    assert prover.prove(constraint).precondition is not None
    asked = (one.prove(constraint, explain=False) for one in (prover, Prover()))
    assert len({(p.verdict, str(p.counterexample), p.precondition, p.smallest) for p in asked}) == 1


def test_without_z3_what_is_open_is_unknown() -> None:
    text = parse_condition("n*n*n + m*m*m != k*k*k")
    proof = Prover(Budget(z3_steps=0)).prove(text, Domain(default_lower=1))
    assert proof.verdict is CHECK
    assert proof.unknown
    assert proof.reason is not None
    assert proof.witness is not None
    assert proof.counterexample is None


POSITIVE = Box(dict.fromkeys("kmn", 1), dict.fromkeys("kmn", INT64_MAX))
DIFFICULT = parse_condition("n*n*n + m*m*m == k*k*k")


def test_questions_to_z3_share_one_budget() -> None:
    solver = Solver(Budget(z3_steps=20_000))
    assert all(solver.ask((DIFFICULT,), POSITIVE) is None for _ in range(40))
    spent = solver.asked
    assert 0 < spent < 40
    solver.begin()
    solver.ask((DIFFICULT,), POSITIVE)
    assert solver.asked == spent + 1


def test_a_question_ends_by_its_steps_not_by_the_clock() -> None:
    easy = parse_condition("n*n == 9 and n < k")
    few, enough = (Solver(Budget(z3_steps=steps)) for steps in (FEWEST, 20_000))
    assert few.ask((easy,), POSITIVE) is None
    assert few.asked == 0
    assert isinstance(enough.ask((easy,), POSITIVE), dict)
    before = enough.asked
    assert enough.ask((DIFFICULT,), POSITIVE) is None
    assert enough.asked == before + 1


def test_answers_do_not_depend_on_the_hash_seed() -> None:
    program = """
from symalloc.prover.domain import Budget
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.parse import parse_condition
for text in ("(n // m) // k == n // (m*k)", "a*b*c >= a + b + c - 2"):
    proof = Prover(Budget(z3_steps=0)).prove(parse_condition(text), Domain(default_lower=1))
    print(proof.decided_by, proof.verdict, proof.counterexample, proof.witness, proof.precondition)
"""
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(answers) == 1


def test_proofs_are_remembered_by_what_matters() -> None:
    prover, given = Prover(), parse_condition("m <= n")
    first = prover.prove(parse_condition("4*m <= 4*n"), Domain(assumptions=(given,)))
    unrelated = Domain(assumptions=(given, parse_condition("k <= 3")))
    again = prover.prove(parse_condition("4*m <= 4*n"), unrelated)
    assert first.verdict is again.verdict is VALID
    assert again.domain is unrelated
    assert sum(prover.decided.values()) == 1


def test_bounds_are_part_of_what_is_remembered() -> None:
    prover = Prover()
    constraint = parse_condition("n <= 4")
    assert prover.prove(constraint, Domain(upper={"n": 4})).verdict is VALID
    assert prover.prove(constraint, Domain(upper={"n": 5})).verdict is CHECK
    assert prover.prove(parse_condition("m <= 4"), Domain(lower={"m": 5})).verdict is INVALID


def test_bounds_of_unrelated_assumptions_are_part_of_what_is_remembered() -> None:
    prover = Prover()
    constraint, given = parse_condition("n <= 2**63"), (parse_condition("k <= m"),)
    assert prover.prove(constraint, Domain(assumptions=given)).verdict is VALID
    apart = Domain(assumptions=given, lower={"k": 5}, upper={"m": 4})
    assert prover.prove(constraint, apart).verdict is Verdict.VACUOUS


def test_implies() -> None:
    prover = Prover()
    premises = [parse_condition("n <= m"), parse_condition("m <= 8")]
    assert prover.implies(premises, parse_condition("n <= 8"))
    assert not prover.implies(premises, parse_condition("n <= 7"))
    assert prover.implies([parse_condition("n < n - 1")], parse_condition("n == 3"))


def test_completing_a_point() -> None:
    domain = Domain(assumptions=(parse_condition("k >= 7"), parse_condition("n <= 4")))
    assert Prover().complete({"n": 1}, domain) == {"n": 1, "k": 7}


def test_domain() -> None:
    domain = Domain(lower={"n": 2}, assumptions=(parse_condition("n <= m"),))
    assert domain.contains({"n": 2, "m": 3})
    assert not domain.contains({"n": 1, "m": 3})
    assert not domain.contains({"n": 4, "m": 3})
    assert domain.upper_of("m") == INT64_MAX


HARD = json.loads((Path(__file__).parent / "data" / "hard.json").read_text(encoding="utf-8"))
MOST = 20_000  # points that are looked at one by one below a counterexample


def bounded_domain(row: Mapping[str, Any]) -> Domain:
    assumptions = tuple(map(parse_condition, row["assume"]))
    return Domain(assumptions=assumptions, default_lower=row.get("least", 0))


@pytest.mark.parametrize("row", HARD, ids=[row["name"] for row in HARD])
def test_verdict_and_smallest_point(row: Mapping[str, Any]) -> None:
    proof = Prover().prove(parse_condition(row["constraint"]), bounded_domain(row))
    assert (proof.verdict, proof.unknown) == (row["verdict"], False)
    assert proof.counterexample == row["smallest"]
    assert proof.smallest is (row["smallest"] is not None)


@pytest.mark.parametrize("row", [r for r in HARD if r["smallest"]], ids=lambda row: row["name"])
def test_nothing_smaller_fails(row: Mapping[str, Any]) -> None:
    constraint, domain, found = parse_condition(row["constraint"]), bounded_domain(row), row["smallest"]
    claims = [defined(constraint), *map(defined, domain.assumptions)]
    assert [claim.evaluate(found) for claim in claims] == [False, *(True for _ in claims[1:])]
    size = max(map(abs, found.values()))
    sides = [range(max(domain.lower_of(n), -size), size + 1) for n in sorted(found)]
    if prod(map(len, sides)) > MOST:
        sides = [side[: int(MOST ** (1 / len(sides)))] for side in sides]
    for values in product(*sides):
        point = dict(zip(sorted(found), values, strict=True))
        if order(point) < order(found):
            assert claims[0].evaluate(point) or not all(c.evaluate(point) for c in claims[1:]), point


def defined(condition: Condition) -> Condition:
    return holds(condition, lambda _: False)
