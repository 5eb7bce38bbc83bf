"""`symalloc prove`: one constraint, or a file of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from symalloc.cli.click_options import format_option, from_table, given_as, written
from symalloc.cli.output import remark, show
from symalloc.errors import UsageError
from symalloc.linter.lint_options import LintOptions
from symalloc.options import PATH
from symalloc.planner.memory_plan import PlanOptions
from symalloc.prover import smtlib
from symalloc.prover.batch import BatchError, answer, proof_row, read_questions, summary
from symalloc.prover.domain import Domain, Proof, Verdict
from symalloc.prover.prover import Prover
from symalloc.session.files import read_text, write_proofs
from symalloc.size.condition import Condition
from symalloc.size.parse import SizeSyntaxError, parse_condition, symbols_in

_SHOWN = 60  # characters of a constraint on either side of a mistake


@click.command("prove")
@click.argument("constraint", required=False)
@from_table(LintOptions, "assume")
@format_option("the answer")
@given_as(
    "--batch",
    kind=PATH,
    metavar="FILE",
    help='A JSON list of {"id", "constraint", "assume", "lower_bounds"}. Lower bounds default to 1.',
)
@given_as("-o", "--output", kind=written(), help="Write the answer to this file.")
@from_table(PlanOptions, "certificate")
def prove_command(
    constraint: str | None,
    assume: tuple[str, ...],
    form: str,
    batch: Path | None,
    output: Path | None,
    certificate: Path | None,
) -> int:
    """Sort a size CONSTRAINT into always-valid, always-invalid or runtime-check.

    A symbol is an integer from 0 to 2**63 - 1.

    Exit status: 0 if the constraint is always valid, 1 if not, 2 for bad input.  With --batch: 0, or 2 for
    bad input.
    """
    if (constraint is None) == (batch is None):
        raise click.UsageError('give one constraint, such as "4*m <= 16", or --batch FILE')
    if batch is not None:
        if assume:
            raise click.UsageError("--assume goes with one constraint; a batch has assumptions of its own")
        return _batch(batch, output, certificate)
    assert constraint is not None
    return _single(constraint, assume, form, output, certificate)


def _single(
    text: str, assume: Sequence[str], form: str, output: Path | None, certificate: Path | None
) -> int:
    constraint = _read(text, "constraint")
    domain = Domain(assumptions=tuple(_read(a, "assumption") for a in assume))
    prover = Prover()
    proof = prover.prove(constraint, domain)
    if proof.verdict is Verdict.VACUOUS:
        given = " and ".join(f"`{text}`" for text in assume)
        raise UsageError(f"the assumptions contradict each other, nothing satisfies {given} (vacuous)")
    if proof.verdict is Verdict.ALWAYS_INVALID and proof.counterexample is not None:
        proof = replace(proof, counterexample=prover.complete(proof.counterexample, domain))
    _mention_unused(text, assume)
    if certificate is not None:
        write_proofs(certificate, {"constraint.smt2": smtlib.certificate(constraint, domain, proof)})
    shown = _as_json(text, assume, proof) if form == "json" else _as_text(text, proof)
    show(shown, output, plain=form == "json")
    return 0 if proof.verdict is Verdict.ALWAYS_VALID else 1


def _read(text: str, role: str) -> Condition:
    if not text.strip():
        raise UsageError(f"the {role} is empty; give one such as `4*m <= 16`")
    try:
        return parse_condition(text)
    except SizeSyntaxError as error:
        if "\n" in error.text or error.text != text:
            raise UsageError(f"{role}: {error}") from None
        raise UsageError(f"{role}: {error.problem}\n{_pointed_at(text, error.column)}") from None


def _pointed_at(text: str, column: int) -> str:
    """`text` with a caret below `column`, from 0; only what is around it where it is long."""
    first = max(0, column - _SHOWN)
    shown = text[first : column + _SHOWN]
    before, after = "… " if first else "", " …" if column + _SHOWN < len(text) else ""
    return f"  {before}{shown}{after}\n  {' ' * (len(before) + column - first)}^"


def _mention_unused(text: str, assume: Sequence[str]) -> None:
    """Say which symbols of the assumptions the constraint does not have, unless others tie them to it."""
    known = set(symbols_in(text))
    groups = [symbols_in(a) for a in assume]
    for _ in groups:
        for group in groups:
            if not known.isdisjoint(group):
                known |= group
    for name in sorted(frozenset().union(*groups) - known):
        remark(f"note: `{name}` of --assume has nothing to do with the constraint")


def _as_text(text: str, proof: Proof) -> str:
    written = " ".join(text.split())
    facts = "".join(f"  {name}: {said}\n" for name, said in proof.facts(written))
    return f"{proof.verdict.value}: {written}\n{facts}"


def _as_json(text: str, assume: Sequence[str], proof: Proof) -> str:
    row = proof_row(proof, proof.counterexample, proof.witness)
    row["seconds"] = round(proof.seconds, 6)
    return json.dumps({"constraint": text, "assume": list(assume), **row}, indent=2) + "\n"


def _batch(file: Path, output: Path | None, certificate: Path | None) -> int:
    try:
        questions = read_questions(read_text(file))
    except BatchError as error:
        raise UsageError(f"{file}: {error}") from None
    prover = Prover()
    rows, asked, proofs = [], 0, {}
    for question in questions:
        before = prover.solver.asked
        row, proof = answer(question, prover)
        asked += prover.solver.asked > before
        rows.append(row)
        if certificate is not None:
            name = re.sub(r"[^\w.-]", "_", question.id)
            proofs[f"{name}.smt2"] = smtlib.certificate(question.constraint, question.domain, proof)
    if certificate is not None:
        write_proofs(certificate, proofs)
    text = "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"
    show(text, output)
    remark(summary(questions, rows, asked))
    return 0
