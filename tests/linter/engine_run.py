"""Runs the engine on a program with the shipped rules."""

from __future__ import annotations

from collections.abc import Sequence

from symalloc.linter.diagnostic import Diagnostic, Report
from symalloc.linter.linter import check
from symalloc.program.ir import Program
from symalloc.prover.domain import Verdict
from symalloc.prover.prover import Prover
from symalloc.rulebook.rule import load_rules
from symalloc.size.parse import parse_condition

PROVER = Prover()
BOOK = load_rules()


def run(program: Program, *select: str, assume: Sequence[str] = ()) -> Report:
    return check(program, BOOK.select(select), PROVER, assume=[parse_condition(a) for a in assume])


def findings(program: Program, *select: str, assume: Sequence[str] = ()) -> tuple[Diagnostic, ...]:
    return run(program, *select, assume=assume).diagnostics


def verdicts(program: Program, *select: str, assume: Sequence[str] = ()) -> list[Verdict | None]:
    return [d.verdict for d in findings(program, *select, assume=assume)]
