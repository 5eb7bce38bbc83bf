"""Measure what each layer of the prover is worth: decided questions and times with and without it.

Three sets of questions: random ones (`fuzz_prove`), a file of constraints, and all that is asked when the
models of `tests/models/zoo` are linted and planned and their plans are linted.  A layer is worth its lines
where something stays undecided or takes longer without it.  Last each set is asked again after all others,
backwards: an answer that then differs from that of a fresh prover is counted as changed.

    python -m benchmarks.ablate_prover [FILE] [--count N] [--no-zoo]
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import process_time
from typing import TypeAlias
from unittest.mock import patch

import click

from benchmarks.harness import patched
from benchmarks.prove_constraints import OWN
from symalloc.prover.batch import read_questions
from symalloc.prover.domain import Budget, Domain, Proof
from symalloc.prover.prover import Prover, content_key
from symalloc.size.condition import Condition
from symalloc.size.expr import ZERO
from symalloc.size.parse import parse_condition
from tests.prover.random_questions import domain_of, plain, readable_question

_EVERYTHING = Domain()
Asked: TypeAlias = tuple[Condition, Domain, bool]
_QUERY = "symalloc.prover.query"


def _always(answer: object) -> Callable[..., object]:
    return lambda *_args, **_options: answer


_nothing, _false, _none = _always(None), _always(False), _always(())


# layer -> what stands in for it
LAYERS: dict[str, dict[str, object]] = {
    "bounds": {f"{_QUERY}._by_bounds": _nothing},
    "refutation": {f"{_QUERY}.refute": _nothing},
    "products": {f"{_QUERY}.contradiction": _false},
    "remainders": {f"{_QUERY}._Refutation.residues": _false},
    "multipliers": {f"{_QUERY}._multipliers": _none},
    "polynomial division": {f"{_QUERY}.long_division": lambda above, _below: (ZERO, above)},
    "descent": {"symalloc.prover.prover._Search._descend": _nothing},
    "z3": {f"{_QUERY}.Solver.ask": _nothing},
}


def measured(questions: Sequence[Asked], budget: Budget) -> tuple[int, int, list[float]]:
    """How many of `questions` are decided, how many z3 was asked, and the ascending seconds of each."""
    prover, decided, seconds = Prover(budget), 0, []
    for constraint, domain, explain in questions:
        start = process_time()
        proof = prover.prove(constraint, domain, explain=explain)
        seconds.append(process_time() - start)
        decided += not proof.unknown
    return decided, prover.solver.asked, sorted(seconds)


def answers(questions: Sequence[Asked]) -> dict[object, tuple[object, ...]]:
    """What a prover that remembers nothing says of each of `questions`, in their order."""
    prover, found = Prover(), dict[object, tuple[object, ...]]()
    for constraint, domain, explain in questions:
        proof = prover.prove(constraint, domain, explain=explain)
        key = (constraint.key, content_key(domain), explain)
        found[key] = (
            proof.verdict,
            proof.decided_by,
            proof.counterexample,
            proof.witness,
            proof.precondition,
        )
    return found


def from_fuzz(count: int) -> list[Asked]:
    """Random questions."""
    rng = random.Random(0)
    questions = (readable_question(rng) for _ in range(count))
    return [(parse_condition(plain(q.constraint)), domain_of(q), True) for q in questions]


def from_file(file: Path) -> list[Asked]:
    """The questions of a file of constraints."""
    return [(q.constraint, q.domain, True) for q in read_questions(file.read_text(encoding="utf-8"))]


def from_zoo() -> list[Asked]:
    """What linting and planning the zoo's models asks, each question once."""
    import symalloc
    from tests.models.zoo import MODELS

    asked: dict[tuple[object, ...], Asked] = {}
    prove = Prover.prove

    def recorded(
        self: Prover, constraint: Condition, domain: Domain = _EVERYTHING, *, explain: bool = True
    ) -> Proof:
        key = (constraint.key, content_key(domain), explain)
        asked.setdefault(key, (constraint, domain, explain))
        return prove(self, constraint, domain, explain=explain)

    with patch.object(Prover, "prove", recorded):
        for model in MODELS.values():
            if not model.needs or importlib.util.find_spec(model.needs) is not None:
                module = model.build()
                symalloc.lint(module)
                with suppress(RuntimeError):  # TVM cannot lower each plan of each model
                    symalloc.lint(symalloc.plan(module).module, stage="as-is")
    return list(asked.values())


def row(name: str, found: tuple[int, int, list[float]]) -> str:
    """One line of the table."""
    decided, asked, seconds = found
    middle, high = seconds[len(seconds) // 2], seconds[int(len(seconds) * 0.99)]
    return f"{name:22}{decided:9}{asked:7}{1e3 * middle:10.3f}{1e3 * high:10.2f}{sum(seconds):10.2f}"


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False), default=OWN)
@click.option("--count", default=3_000, show_default=True, help="How many random constraints.")
@click.option("--zoo/--no-zoo", default=True, help="Ask what linting and planning the zoo asks (needs TVM).")
def main(file: Path, count: int, zoo: bool) -> None:
    """Print the table."""
    sets = {"fuzz": from_fuzz(count), "file": from_file(file)} | ({"zoo": from_zoo()} if zoo else {})
    fresh = {name: answers(questions) for name, questions in sets.items()}
    for name, questions in sets.items():
        print(f"\n{name}: {len(questions)} questions")
        print(f"{'without':22}{'decided':>9}{'to z3':>7}{'p50 ms':>10}{'p99 ms':>10}{'total s':>10}")
        measured(questions, Budget())  # so that imports are not counted
        for layer in ("-", *LAYERS):
            with patched(LAYERS.get(layer, {})):
                print(row(layer, measured(questions, Budget())), flush=True)
        again = answers(questions[::-1])
        print(f"{name}: {sum(again[key] != one for key, one in fresh[name].items())} answers changed")


if __name__ == "__main__":
    main()
