"""Many constraints at once: reading questions, answering them in rows, summing up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NotRequired, TypeAlias, TypedDict

import msgspec

from symalloc.prover.domain import Domain, Proof
from symalloc.prover.prover import Prover
from symalloc.size.condition import Condition
from symalloc.size.parse import SizeSyntaxError, parse_condition, symbols_in

Point = Mapping[str, int]


class ProofRow(TypedDict):
    """The answer to a constraint, which is written unless there is an `id` in its place.

    `smallest`: it is proved that the constraint fails at no smaller point than `counterexample`.  It holds at
    `witness`.  `precondition` is equivalent to it over the domain.  `unknown`: it was not decided.
    """

    id: NotRequired[str]
    constraint: NotRequired[str]
    assume: NotRequired[list[str]]
    verdict: str
    counterexample: dict[str, int] | None
    smallest: bool | None
    witness: dict[str, int] | None
    precondition: str | None
    decided_by: str
    unknown: bool
    reason: str | None
    seconds: float


ProofRows: TypeAlias = ProofRow | list[ProofRow]


class QuestionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A constraint to be proved; a symbol without a lower bound is at least 1, `label` is expected."""

    constraint: str
    id: str | int | None = None
    assume: tuple[str, ...] = ()
    lower_bounds: dict[str, int] = {}
    label: str | None = None


class BatchError(ValueError):
    """The questions cannot be read; the text says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One constraint with its assumptions and lower bounds, read; `label` is the verdict that is expected,
    if known.
    """

    id: str
    constraint: Condition
    domain: Domain
    names: frozenset[str] = field(
        default_factory=frozenset
    )  # every symbol written, also those that cancel out
    label: str | None = None


def read_questions(text: str) -> list[Question]:
    """The questions of a JSON list of `{"id", "constraint", "assume", "lower_bounds", "label"}`.

    Only `constraint` is required.  A symbol without a lower bound is at least 1.  Raises BatchError.
    """
    try:
        entries = msgspec.json.decode(text, type=list[QuestionEntry])
    except msgspec.ValidationError as error:
        raise BatchError(f"not a list of constraints: {error}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise BatchError(f"not JSON: {error}") from None
    return [_question(entry, index) for index, entry in enumerate(entries)]


def answer(question: Question, prover: Prover) -> tuple[ProofRow, Proof]:
    """The row for `question`, points filled up to every symbol that is written, and its proof."""
    proof = prover.prove(question.constraint, question.domain)
    points = (_full(point, question, prover) for point in (proof.counterexample, proof.witness))
    return {"id": question.id, **proof_row(proof, *points)}, proof


def proof_row(proof: Proof, counterexample: Point | None, witness: Point | None) -> ProofRow:
    """`proof` as JSON, with its points as they are to be shown."""
    return {
        "verdict": proof.verdict.value,
        "counterexample": None if counterexample is None else dict(counterexample),
        "smallest": None if counterexample is None else proof.smallest,
        "witness": None if witness is None else dict(witness),
        "precondition": None if proof.precondition is None else str(proof.precondition),
        "decided_by": proof.decided_by,
        "unknown": proof.unknown,
        "reason": proof.reason,
        "seconds": proof.seconds,
    }


def summary(questions: Sequence[Question], rows: Sequence[ProofRow], asked: int) -> str:
    """One line: how many of each verdict, times, the share of questions put to z3 (`asked`), agreement with
    labels.
    """
    if not rows:
        return "no constraints"
    seconds = sorted(row["seconds"] for row in rows)
    decided = sum(not row["unknown"] for row in rows)
    parts = [
        f"{len(rows)} constraints, {decided} decided",
        f"p50 {1e3 * seconds[len(rows) // 2]:.2f} ms",
        f"p99 {1e3 * seconds[min(len(rows) - 1, int(len(rows) * 0.99))]:.1f} ms",
        f"z3 asked about {100 * asked / len(rows):.1f}%",
    ]
    labelled = [(q.label, row) for q, row in zip(questions, rows, strict=True) if q.label is not None]
    if labelled:
        wrong = [row["id"] for label, row in labelled if not row["unknown"] and row["verdict"] != label]
        right = sum(not row["unknown"] and row["verdict"] == label for label, row in labelled)
        parts.append(f"{right} of {len(labelled)} as labelled, {len(wrong)} decided otherwise")
        if wrong:
            parts[-1] += f" ({', '.join(wrong[:5])}{', …' if len(wrong) > 5 else ''})"
    return "; ".join(parts)


def _question(entry: QuestionEntry, index: int) -> Question:
    name = str(index if entry.id is None else entry.id)
    texts = (entry.constraint, *entry.assume)
    try:
        conditions = [parse_condition(t) for t in texts]
        names = frozenset().union(*map(symbols_in, texts))
    except SizeSyntaxError as error:
        raise BatchError(f"entry `{name}`: {error}") from None
    return Question(
        id=name,
        constraint=conditions[0],
        domain=Domain(lower=entry.lower_bounds, default_lower=1, assumptions=tuple(conditions[1:])),
        names=names,
        label=entry.label,
    )


def _full(point: Point | None, question: Question, prover: Prover) -> dict[str, int] | None:
    if point is None:
        return None
    full = prover.complete(point, question.domain) or dict(point)
    return {n: full.get(n, question.domain.lower_of(n)) for n in sorted(question.names | set(full))}
