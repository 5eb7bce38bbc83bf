"""Random constraints, and what brute force over small boxes has to say against their proofs.

Each constraint is written twice, as text for symalloc and as a Python function of its own (which refuses
divisors below one), so that the reader, the evaluator and the prover are all under test.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from symalloc.prover.domain import INT64_MAX, Domain, Proof, Verdict
from symalloc.size.choice import holds
from symalloc.size.parse import SizeSyntaxError, parse_condition

NAMES = ("a", "b", "c")
SMALL = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 64)
LARGE = (1024, 4096, 2**31, 2**62, 2**63 - 1, 2**63)
# the largest value that is looked at below a counterexample, by symbols
MOST_BELOW = {1: 2_000, 2: 45, 3: 12}


class UndefinedError(Exception):
    """A divisor below one."""


def _checked(divisor: int) -> int:
    if divisor < 1:
        raise UndefinedError
    return divisor


@dataclass(frozen=True)
class Question:
    """A constraint over a domain, as text and as Python functions."""

    constraint: str
    assumptions: tuple[str, ...]
    lower: Mapping[str, int]
    upper: Mapping[str, int]
    complete: bool  # whether brute force sees every point

    def points(self, reach: int) -> Iterator[dict[str, int]]:
        """The domain's points with every symbol at most `reach` above its lower bound."""
        given = [meaning(a) for a in self.assumptions]
        ranges = [range(self.lower[n], min(self.upper[n], self.lower[n] + reach) + 1) for n in NAMES]
        for values in product(*ranges):
            point = dict(zip(NAMES, values, strict=True))
            if all(g(point) for g in given):
                yield point


def meaning(text: str) -> Callable[[Mapping[str, int]], bool]:
    """The meaning of `text` by Python's own evaluation, one relation at a time: an undefined relation is
    false.
    """
    parts: list[str] = []
    for alternative in text.split(" or "):
        conjuncts = [f"truth(lambda: {_guarded(c)})" for c in alternative.split(" and ")]
        parts.append(" and ".join(conjuncts))
    source = " or ".join(f"({p})" for p in parts)
    code = compile(source, "<question>", "eval")

    def run(point: Mapping[str, int]) -> bool:
        return bool(eval(code, {"checked": _checked, "truth": _truth, "min": min, "max": max, **point}))

    return run


def _truth(thunk: Callable[[], bool]) -> bool:
    try:
        return thunk()
    except UndefinedError:
        return False


def _guarded(text: str) -> str:
    """The generator writes divisors `[d]`, which go through `checked` here, and `&` in tests for `and`."""
    return _words(text).replace("[", "checked(").replace("]", ")")


def _words(text: str) -> str:
    return text.replace("&", "and").replace("|", "or")


def _size(rng: random.Random, depth: int, names: tuple[str, ...]) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.2:
        return rng.choice(names) if rng.random() < 0.75 else str(rng.choice(SMALL))
    inner = [_size(rng, depth - 1, names) for _ in range(2)]
    if kind < 0.52:
        return f"({inner[0]} {rng.choice('+-')} {inner[1]})"
    if kind < 0.55:
        return rng.choice((f"0*{inner[0]}", f"({inner[0]} - {inner[0]})", f"({inner[0]}*8 % [4])"))
    if kind < 0.72:
        return f"{_coefficient(rng)}*{inner[0]}" if rng.random() < 0.6 else f"({inner[0]}*{inner[1]})"
    if kind < 0.88:
        divisor = rng.choice((2, 3, 4, 8, 16, 256, _coefficient(rng))) if rng.random() < 0.75 else inner[1]
        return f"({inner[0]} {rng.choice(('//', '%'))} [{divisor}])"
    if kind < 0.96:
        return f"{rng.choice(('min', 'max'))}({inner[0]}, {inner[1]})"
    test = _test(rng, names)
    return f"({inner[0]} if {test} else {inner[rng.random() < 0.8]})"


def _coefficient(rng: random.Random) -> int:
    if rng.random() < 0.85:
        return rng.choice(SMALL[1:])
    return max(2, 2 ** rng.randint(2, 62) + rng.choice((-1, 0, 0, 1)))


def _test(rng: random.Random, names: tuple[str, ...]) -> str:
    """What decides between two sizes; it may divide."""
    test = _relation(rng, rng.choice((0, 0, 1)), names)
    if rng.random() < 0.25:
        test = f"({test} {rng.choice('&|')} {_relation(rng, rng.choice((0, 1)), names)})"
    return f"not ({test})" if rng.random() < 0.1 else test


def _relation(rng: random.Random, depth: int, names: tuple[str, ...]) -> str:
    operator = rng.choice(("<=", "<=", "<", ">=", ">", "==", "!="))
    if rng.random() < 0.15:
        right = str(rng.choice(LARGE))
    else:
        right = str(rng.choice(SMALL)) if rng.random() < 0.35 else _size(rng, depth, names)
    return f"{_size(rng, depth, names)} {operator} {right}"


def _condition(rng: random.Random, names: tuple[str, ...]) -> str:
    shape = rng.random()
    count = 1 if shape < 0.75 else 2 if shape < 0.95 else 3
    words = [rng.choice((" and ", " or ")) for _ in range(count - 1)]
    relations = [_relation(rng, rng.choice((1, 2, 2, 3)), names) for _ in range(count)]
    return "".join(r + w for r, w in zip(relations, [*words, ""], strict=True))


def _assumption(rng: random.Random, names: tuple[str, ...]) -> str:
    name = rng.choice(names)
    kind = rng.random()
    if kind < 0.3:
        bound = rng.choice(SMALL) if rng.random() < 0.8 else _coefficient(rng)
        return f"{name} {rng.choice(('<=', '>=', '!='))} {bound}"
    if kind < 0.5:
        return f"{name} % [{rng.choice((2, 3, 4, 16))}] == {rng.choice((0, 0, 0, 1))}"
    if kind < 0.7:
        return f"{name} == {_size(rng, 1, names)}"
    return _relation(rng, 1, names)


def _question(rng: random.Random) -> Question:
    names = NAMES[: rng.choice((1, 2, 2, 3))]
    complete = rng.random() < 0.4
    lower = {n: rng.choice((0, 0, 1, 1, -3)) for n in NAMES}
    reach = {1: 24, 2: 9, 3: 5}[len(names)]
    upper = {n: (lower[n] + rng.randint(0, reach)) if complete else INT64_MAX for n in NAMES}
    for name in NAMES[len(names) :]:
        lower[name] = upper[name] = 0  # does not occur
    count = rng.choice((0, 0, 0, 1, 1, 2, 3))
    return Question(
        constraint=_condition(rng, names),
        assumptions=tuple(_assumption(rng, names) for _ in range(count)),
        lower=lower,
        upper=upper,
        complete=complete,
    )


def readable_question(rng: random.Random) -> Question:
    """A question whose divisors are not constants below one, which the reader refuses."""
    while True:
        question = _question(rng)
        try:
            for text in (question.constraint, *question.assumptions):
                parse_condition(plain(text))
        except SizeSyntaxError:
            continue
        return question


def plain(text: str) -> str:
    return _words(text).replace("[", "(").replace("]", ")")


def domain_of(question: Question) -> Domain:
    assumptions = tuple(parse_condition(plain(a)) for a in question.assumptions)
    return Domain(lower=question.lower, upper=question.upper, assumptions=assumptions)


def contradictions(question: Question, proof: Proof, reach: int) -> Iterator[str]:
    """The facts that contradict `proof`."""
    claim = meaning(question.constraint)
    truths = [(point, claim(point)) for point in question.points(reach)]
    held, failed = any(t for _, t in truths), any(not t for _, t in truths)
    if proof.verdict is Verdict.ALWAYS_VALID and failed:
        yield "called always valid, but fails"
    if proof.verdict is Verdict.ALWAYS_INVALID and held:
        yield "called always invalid, but holds"
    if proof.verdict is Verdict.VACUOUS and truths:
        yield "called vacuous, but the domain has points"
    if question.complete and not truths and proof.verdict is not Verdict.VACUOUS and not proof.unknown:
        yield "the domain is empty, but not called vacuous"
    decided = proof.verdict is Verdict.RUNTIME_CHECK and not proof.unknown
    if question.complete and decided and not (held and failed):
        yield "called a run-time check, but is settled"
    points = (("counterexample", proof.counterexample, False), ("witness", proof.witness, True))
    for name, point, truth in points:
        if point is not None and not _is_point(question, point, claim, truth):
            yield f"{name} {dict(point)} does not check"
    below = _below(question, proof, claim)
    if below is not None:
        yield f"counterexample {dict(proof.counterexample or {})} is not the smallest: {below}"
    if proof.precondition is not None:
        written = holds(parse_condition(str(proof.precondition)), lambda _: False)
        for point, truth in truths:
            if written.evaluate(point) is not truth:
                yield f"precondition {proof.precondition} differs at {point}"
                return


def _below(
    question: Question, proof: Proof, claim: Callable[[Mapping[str, int]], bool]
) -> Mapping[str, int] | None:
    """A point below the counterexample of `proof` where the claim fails, too, although it is called smallest.

    Below: its largest value is less, or it comes before in the order of names, nearer to zero first.
    """
    found = proof.counterexample
    if not found or not proof.smallest:
        return None
    names, largest = sorted(found), max(map(abs, found.values()))
    limit = min(largest, MOST_BELOW[len(names)])
    sides = [range(max(question.lower[n], -limit), min(question.upper[n], limit) + 1) for n in names]
    known = {n: question.lower[n] for n in NAMES}
    given = [a for a in question.assumptions if parse_condition(plain(a)).symbols <= set(names)]
    tests = [meaning(a) for a in given]
    for values in product(*sides):
        point = {**known, **dict(zip(names, values, strict=True))}
        smaller = {n: point[n] for n in names}
        if _size_of(smaller) < _size_of(found) and all(t(point) for t in tests) and not claim(point):
            return smaller
    return None


def _size_of(point: Mapping[str, int]) -> tuple[int, list[tuple[int, int]]]:
    values = [(abs(point[n]), point[n]) for n in sorted(point)]
    return max(size for size, _ in values), values


def _is_point(
    question: Question, point: Mapping[str, int], claim: Callable[[Mapping[str, int]], bool], truth: bool
) -> bool:
    full = {**{n: question.lower[n] for n in NAMES}, **point}
    inside = all(question.lower[n] <= v <= question.upper[n] for n, v in point.items())
    relevant = [a for a in question.assumptions if parse_condition(plain(a)).symbols <= set(point)]
    return inside and all(meaning(a)(full) for a in relevant) and claim(full) is truth
