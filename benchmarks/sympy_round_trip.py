"""Random sizes and conditions to sympy and back, compared by value at random points with sympy's own.

Exit status 1 where what comes back has another value, or sympy another one at a point where all divisors are
positive.

    python -m benchmarks.sympy_round_trip [--count N] [--seed N]
"""

from __future__ import annotations

import random
import sys
from functools import partial

import click
import sympy

from symalloc.size.condition import Condition
from symalloc.size.expr import Expr
from symalloc.size.parse import as_condition, as_expr, parse_condition
from symalloc.size.sympy_terms import symbols
from tests.prover.random_questions import plain, readable_question

POINTS = tuple(
    {"a": a, "b": b, "c": c, "n": a, "m": b}
    for a, b, c in ((1, 2, 3), (17, 5, 1), (64, 4096, 7), (1000, 999, 8), (-3, 5, 2), (7, -40, -1))
)


def drawn(rng: random.Random) -> Expr | Condition:
    """A random condition, or an expression that one compares."""
    condition = parse_condition(plain(readable_question(rng).constraint))
    return condition if rng.random() < 0.25 or not condition.exprs else rng.choice(condition.exprs)


def objection(subject: Expr | Condition) -> str | None:
    """How the value of `subject`, of it as sympy's, and of that read again differ; None where they agree."""
    defined = [(at, value) for at, value in map(partial(_evaluated, subject), POINTS) if value is not None]
    if not defined:
        return None
    written = sympy.sympify(subject)
    again = as_expr(written) if isinstance(subject, Expr) else as_condition(written)
    for at, value in defined:
        there = written.xreplace({symbols(name): sympy.Integer(one) for name, one in at.items()})
        values = again.evaluate(at), bool(there) if isinstance(subject, Condition) else int(there)
        if set(values) != {value}:
            return f"{subject} at {at}: {value}, again and by sympy {values}; {written}"
    return None


def _evaluated(subject: Expr | Condition, point: dict[str, int]) -> tuple[dict[str, int], int | None]:
    """The coordinates that matter, and the value there; None where a divisor is below 1."""
    at = {name: point.get(name, 2) for name in subject.symbols}
    try:
        value, least = subject.evaluate(at), min((d.evaluate(at) for d in subject.divisors), default=1)
    except ZeroDivisionError:
        return at, None
    return at, value if least >= 1 else None


@click.command()
@click.option("--count", default=10_000, show_default=True, help="How many sizes and conditions.")
@click.option("--seed", default=0, show_default=True, help="Of the random numbers.")
def main(count: int, seed: int) -> None:
    """Compare and count."""
    rng = random.Random(seed)
    objections = [found for _ in range(count) if (found := objection(drawn(rng))) is not None]
    for found in objections[:20]:
        print(found)
    print(f"{count} there and back; values that differ: {len(objections)}")
    sys.exit(1 if objections else 0)


if __name__ == "__main__":
    main()
