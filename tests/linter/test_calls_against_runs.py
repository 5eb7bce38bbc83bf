"""Overwrites across functions: what the linter says of random programs, against runs of them on bytes."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest

from symalloc.linter.diagnostic import Diagnostic, Severity
from symalloc.linter.linter import check
from symalloc.program.ir import Program
from symalloc.prover.prover import Prover
from symalloc.rulebook.rule import load_rules
from tests.linter.call_programs import ByteMachine, random_calls
from tests.scale import tries

pytestmark = pytest.mark.slow

SEEDS = range(tries(40, 3000))
RULES = load_rules().select(("SYM203", "SYM211", "SYM904"))
FLAGS = tuple(product((False, True), repeat=3))
EXTENTS = (1, 4, 8, 16, 20)


@cache
def findings(seed: int) -> tuple[Program, tuple[Diagnostic, ...]]:
    program = random_calls(seed)
    return program, tuple(check(program, RULES, Prover()))


def runs(program: Program, extent: int) -> list[ByteMachine]:
    machines = [ByteMachine(program) for _ in FLAGS]
    for machine, flags in zip(machines, FLAGS, strict=True):
        machine.run(extent, flags)
    return machines


def test_no_overwrite_is_silent() -> None:
    silent, lost = [], 0
    for seed in SEEDS:
        program, found = findings(seed)
        faulty = [(extent, m.lost) for extent in EXTENTS for m in runs(program, extent) if m.lost]
        lost += bool(faulty)
        if faulty and not found:
            silent.append((seed, *faulty[0]))
    assert not silent, silent[:12]
    assert lost > len(SEEDS) // 10


def test_every_error_is_seen_in_a_run() -> None:
    false, errors = {}, 0
    for seed in SEEDS:
        program, found = findings(seed)
        for one in found:
            if one.rule != "SYM203" or one.severity is not Severity.ERROR or one.span is None:
                continue
            errors += 1
            point = one.counterexample or {}
            extents = (point["n"],) if "n" in point else EXTENTS
            seen = {line for extent in extents for m in runs(program, extent) for line in m.lost | m.perhaps}
            if one.span.line not in seen:
                false[seed] = one.message
    assert not false, list(false.items())[:12]
    assert errors > len(SEEDS) // 10
