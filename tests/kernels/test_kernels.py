"""What the linter reads from kernels and says of them, beside an interpreter that executes them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest
import tvm

from symalloc.linter.diagnostic import Report
from symalloc.linter.linter import check
from symalloc.program.ir import Kernel, KernelAccess, KernelBuffer
from symalloc.prover.prover import Prover
from symalloc.relax.extract import extract
from symalloc.relax.extract.kernel_body import extract_kernel
from symalloc.rulebook.rule import load_rules
from tests.kernels.byte_machine import ByteMachine, Performed, TooLongError, UnsupportedError
from tests.kernels.mutants import mutants, replaced
from tests.kernels.operators import legalised, random_call
from tests.mutation.kernels import kernels_of
from tests.scale import NIGHTLY, tries

RULES = load_rules().select(["SYM306", "SYM307"])
SEEDS = 600 if NIGHTLY else 102
EXTENTS = (1, 2, 6)
STEPS = tries(6_000, 40_000)


def sizes_of(kernel: Kernel) -> Iterator[dict[str, int]]:
    """Small values for the symbols of a kernel."""
    shapes = [p.shape or () for p in kernel.parameters if isinstance(p, KernelBuffer)]
    names = sorted({name for shape in shapes for extent in shape for name in extent.symbols})
    for values in product(EXTENTS, repeat=len(names)):
        yield dict(zip(names, values, strict=True))


def executed(function: Any, sizes: Mapping[str, int]) -> list[Performed] | None:
    """What is executed; None where that takes too long, or a buffer would have a negative extent."""
    try:
        machine = ByteMachine(function, draw=random.Random(0), limit=STEPS)
        machine.run(sizes, len(function.params))
    except TooLongError:
        return None
    except UnsupportedError as error:
        if str(error) in ("tirx.buffer_data", "DeclBuffer"):
            return None
        raise
    found = machine.performed
    return None if any(extent < 0 for access in found for extent in access.shape) else found


def places(access: KernelAccess, sizes: Mapping[str, int]) -> Iterator[tuple[int | None, ...]]:
    """The indices of an access at all points of its domain."""

    def points(at: dict[str, int], depth: int) -> Iterator[dict[str, int]]:
        if depth == len(access.loops):
            if all(condition.evaluate(at) for condition in access.domain):
                yield at
            return
        loop = access.loops[depth]
        assert loop.passes is not None
        for value in range(loop.passes.evaluate(at)):
            yield from points({**at, loop.symbol: value}, depth + 1)

    for at in points(dict(sizes), 0):
        yield tuple(None if index is None else index.evaluate(at) for index in access.indices)


def lint(module: tvm.IRModule) -> Report:
    return check(extract(module, name="m"), RULES, Prover())


@pytest.fixture(scope="module")
def modules() -> dict[int, tvm.IRModule]:
    """Modules with kernels, by seed."""
    found = {}
    for seed in range(SEEDS):
        call = random_call(seed)
        module = None if call is None else legalised(call)
        if module is not None and kernels_of(module):
            found[seed] = module
    assert len(found) > SEEDS * 0.8
    return found


def test_no_operator_is_reported(modules: dict[int, tvm.IRModule]) -> None:
    for seed, module in modules.items():
        found = [d.message for d in lint(module) if d.severity != "note"]
        assert not found, (seed, found)


def test_accesses_are_those_that_are_executed(modules: dict[int, tvm.IRModule]) -> None:
    compared = 0
    for seed, module in list(modules.items())[:: 1 if NIGHTLY else 2]:
        for name, function in kernels_of(module).items():
            kernel = extract_kernel(name, function)
            if any(loop.passes is None for access in kernel.accesses for loop in access.loops):
                continue
            for sizes in list(sizes_of(kernel))[-3:]:
                done = executed(function, sizes)
                if done is not None:
                    compare(seed, kernel, sizes, done)
                    compared += 1
    assert compared >= 60


def compare(seed: int, kernel: Kernel, sizes: dict[str, int], done: list[Performed]) -> None:
    really = {(a.parameter, a.kind, a.indices) for a in done if a.parameter >= 0}
    may: set[tuple[Any, ...]] = set()
    # `touch`: the side of a condition that LLVM loads although its value is not needed; the machine does not
    for access in (access for access in kernel.accesses if access.kind != "touch"):
        for indices in places(access, sizes) if access.parameter < len(kernel.parameters) else ():
            place = (access.parameter, access.kind, indices)
            may.add(place)
            if access.exact and None not in indices:
                assert place in really, (seed, kernel.name, sizes, place)
    unknown = {place[:2] for place in may if None in place[2]}
    missed = {place for place in really if place not in may and place[:2] not in unknown}
    assert not missed, (seed, kernel.name, sizes, missed)


def test_indices_that_are_off_are_found_and_no_others(modules: dict[int, tvm.IRModule]) -> None:
    found = harmless = 0
    for seed, module in list(modules.items())[:: 1 if NIGHTLY else 6]:
        draw = random.Random(seed)
        name, function = draw.choice(sorted(kernels_of(module).items()))
        for what, mutant in mutants(function, draw, 2):
            report = lint(replaced(module, name, mutant))
            kernel = extract_kernel(name, mutant)
            runs = [run for sizes in sizes_of(kernel) if (run := executed(mutant, sizes))]
            for kind, rule in (("store", "SYM306"), ("load", "SYM307")):
                outside = [any(a.kind == kind and a.outside for a in run) for run in runs]
                told = [d for d in report if d.rule == rule and d.severity != "note"]
                accesses = kernel.accesses
                data = any(None in access.indices for access in accesses)
                assert told or data or not any(outside), (seed, name, what, rule)
                assert any(outside) or not told or not runs, (seed, name, what, [d.message for d in told])
                found += any(outside)
                harmless += not any(outside)
    assert found >= 10
    assert harmless >= 10
