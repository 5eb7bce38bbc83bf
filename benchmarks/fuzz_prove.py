"""Random constraints, checked against brute force over small boxes and against z3.

The questions are those of `tests/prover/random_questions.py`.  Exit status 1 where a verdict, a
counterexample, a witness or a precondition is contradicted, or a counterexample called smallest is not.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from time import perf_counter

import click

from symalloc.prover.domain import Box, Budget, Proof, Verdict
from symalloc.prover.prover import Prover
from symalloc.prover.smtlib import Solver
from symalloc.size.choice import fails, holds
from symalloc.size.parse import parse_condition
from tests.prover.random_questions import NAMES, Question, contradictions, domain_of, plain, readable_question


def _ask_solver(question: Question, proof: Proof, solver: Solver) -> str | None:
    """z3's objection to a definite verdict."""
    if proof.verdict not in (Verdict.ALWAYS_VALID, Verdict.ALWAYS_INVALID):
        return None
    claim = parse_condition(plain(question.constraint))
    wrong = fails if proof.verdict is Verdict.ALWAYS_VALID else holds
    box = Box(question.lower, question.upper)
    given = [holds(a, lambda _: False) for a in domain_of(question).assumptions]
    solver.begin()
    answer = solver.ask((*given, wrong(claim, lambda _: False)), box)
    return f"z3 objects with {answer}" if isinstance(answer, dict) else None


@click.command()
@click.option("--count", default=20_000, show_default=True, help="How many constraints.")
@click.option("--seed", default=0, show_default=True, help="Of the random numbers.")
@click.option(
    "--solver-every", default=10, show_default=True, help="Ask z3 about each n-th definite verdict."
)
@click.option("--verbose", is_flag=True, help="Print what stayed undecided and what took long.")
def main(count: int, seed: int, solver_every: int, verbose: bool) -> None:
    """Compare random verdicts with brute force and z3."""
    rng = random.Random(seed)
    prover, judge = Prover(), Solver(Budget())
    verdicts: Counter[str] = Counter()
    points: Counter[str] = Counter()
    wrong = 0
    seconds: list[float] = []
    start = perf_counter()
    for index in range(count):
        question = readable_question(rng)
        before = perf_counter()
        proof = prover.prove(parse_condition(plain(question.constraint)), domain_of(question))
        seconds.append(perf_counter() - before)
        verdicts["unknown" if proof.unknown else proof.verdict.value] += 1
        if proof.counterexample:
            points["smallest" if proof.smallest else "not proved smallest"] += 1
        problems = list(contradictions(question, proof, 26 if question.complete else 5))
        if index % solver_every == 0:
            problems += filter(None, [_ask_solver(question, proof, judge)])
        for problem in problems:
            wrong += 1
            _print(question, proof, problem)
        unproved = proof.counterexample is not None and not proof.smallest
        if verbose and (proof.unknown or unproved or seconds[-1] > 0.15):
            _print(question, proof, f"{seconds[-1]:.3f} s, {proof.counterexample} {proof.reason}")
    seconds.sort()
    print(f"{count} constraints in {perf_counter() - start:.0f} s: {dict(verdicts)}")
    print(f"counterexamples: {dict(points)}")
    print(f"decided by {dict(prover.decided)}; z3 asked {prover.solver.asked} times")
    print(
        f"p50 {1e3 * seconds[count // 2]:.2f} ms, p99 {1e3 * seconds[int(count * 0.99)]:.1f} ms a constraint"
    )
    print(f"contradictions: {wrong}")
    sys.exit(1 if wrong else 0)


def _print(question: Question, proof: Proof, problem: str) -> None:
    given = ", ".join(map(plain, question.assumptions))
    bounds = ", ".join(f"{n} in [{question.lower[n]}, {question.upper[n]}]" for n in NAMES)
    print(f"{plain(question.constraint)}   given [{given}]   {bounds}")
    print(f"    {proof.verdict} by {proof.decided_by}: {problem}", flush=True)


if __name__ == "__main__":
    main()
