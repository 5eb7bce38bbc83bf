"""Measure how fast and how well the prover decides a file of labelled constraints.

Prints, for each verdict and layer, how many were decided and how long they took (the best of several runs,
each with a prover that remembers nothing), and the share put to z3.  Without a file: the constraints of the
tests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.harness import print_table
from symalloc.prover.batch import ProofRow, Question, answer, read_questions, summary
from symalloc.prover.prover import Prover

OWN = Path(__file__).parent.parent / "tests" / "prover" / "data" / "constraints.json"


def _run(questions: Sequence[Question]) -> tuple[list[ProofRow], int]:
    prover, rows, asked = Prover(), [], 0
    for question in questions:
        before = prover.solver.asked
        rows.append(answer(question, prover)[0])
        asked += prover.solver.asked > before
    return rows, asked


def _show(rows: Sequence[ProofRow]) -> None:
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        times[row["verdict"], row["decided_by"]].append(1e3 * row["seconds"])
    forms = {"verdict": "16", "decided by": "14", "count": ">6", "median ms": ">11.3f", "worst ms": ">10.2f"}
    figures = [(*key, len(ms), sorted(ms)[len(ms) // 2], max(ms)) for key, ms in sorted(times.items())]
    print_table(forms, [dict(zip(forms, row, strict=True)) for row in figures])


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False), default=OWN)
@click.option("--runs", default=5, show_default=True, help="Runs to take the best time of.")
def main(file: Path, runs: int) -> None:
    """Decide the constraints of FILE."""
    questions = read_questions(file.read_text(encoding="utf-8"))
    best, asked = _run(questions)
    for _ in range(runs - 1):
        for row, again in zip(best, _run(questions)[0], strict=True):
            row["seconds"] = min(row["seconds"], again["seconds"])
    _show(best)
    print(summary(questions, best, asked))


if __name__ == "__main__":
    main()
