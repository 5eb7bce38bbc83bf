"""Random kernels with loops that are left early: what is read of them, and said of them, beside execution."""

from __future__ import annotations

import pytest
from tvm.script import from_source

from symalloc.linter.diagnostic import Diagnostic
from symalloc.linter.linter import check
from symalloc.prover.prover import Prover
from symalloc.relax.extract import extract
from symalloc.relax.extract.kernel_body import extract_kernel
from symalloc.rulebook.rule import load_rules
from tests.kernels.byte_machine import Performed
from tests.kernels.random_bodies import random_module
from tests.kernels.test_kernels import compare, executed
from tests.scale import NIGHTLY

RULES = load_rules().select(["SYM208", "SYM306"])
SIZES = range(1, 9)


def _outside(run: list[Performed], _: int) -> bool:
    return any(access.outside for access in run if access.kind == "store")


def _unwritten(run: list[Performed], size: int) -> bool:
    stored = {access.indices for access in run if access.kind == "store" and not access.outside}
    return len(stored) < size


FAULTS = {"SYM306": _outside, "SYM208": _unwritten}


def _is_right(found: Diagnostic, really: dict[int, bool]) -> bool:
    """True unless execution contradicts an error."""
    size = (found.counterexample or {}).get("n")
    return any(really.values()) if size is None else really.get(size, True)


@pytest.mark.parametrize("seed", range(600 if NIGHTLY else 16))
def test_execution_contradicts_no_finding(seed: int) -> None:
    script = random_module(seed)
    module = from_source(script)
    kernel = extract_kernel("work", module["work"])
    runs = {size: run for size in SIZES if (run := executed(module["work"], {"n": size})) is not None}
    for size in (1, 3, 4):
        compare(seed, kernel, {"n": size}, runs[size])
    for found in check(extract(module, name="m"), RULES, Prover()):
        if found.severity == "error" and "a[0]" not in script:
            really = {size: FAULTS[found.rule](run, size) for size, run in runs.items()}
            assert _is_right(found, really), (seed, found.message, really)
