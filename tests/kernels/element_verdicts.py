"""What lint says of a random kernel, beside what the oracle sees when it executes it on bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from tvm.script import from_source

from symalloc.linter.diagnostic import Diagnostic
from symalloc.linter.linter import check
from symalloc.prover.prover import Prover
from symalloc.relax.extract import extract
from symalloc.rulebook.rule import load_rules
from tests.kernels.byte_machine import ByteMachine, TooLongError
from tests.kernels.element_kernels import ElementKernel

__all__ = ["Judged", "Outcome", "judged"]

Outcome: TypeAlias = Literal[
    "harmful, found",
    "harmful, undecided",
    "harmful, missed",
    "harmless, clean",
    "harmless, undecided",
    "harmless, error",
    "race",
]
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 33)
FARTHEST = 70_000
"""The greatest size of a counterexample that is tried."""
_LEFT, _OUTSIDE = frozenset({"unwritten", "left"}), frozenset({"outside", "elsewhere"})
_SEEN = {"SYM208": _LEFT, "SYM306": _OUTSIDE, "SYM307": _OUTSIDE}
_HARM = frozenset({"unwritten", "left", "outside"})
_RULES = load_rules()


class Judged(NamedTuple):
    """What came of one kernel; `wrong` are sentences that execution contradicts, or that speak of data."""

    outcome: Outcome
    wrong: tuple[str, ...] = ()


def judged(kernel: ElementKernel) -> Judged:
    """Lint a kernel and execute it at several sizes."""
    module = from_source(kernel.script)
    machines = [ByteMachine(module[name]) for name in kernel.names]
    runs = {n: _run(machines, n) for n in (SIZES if kernel.symbolic else (16,))}
    found = list(check(extract(module, name="m"), _RULES, Prover()))
    errors = [d for d in found if d.severity == "error" or (d.rule, d.severity) == ("SYM307", "warning")]
    for size in {(d.counterexample or {}).get("n", 1) for d in errors if kernel.symbolic}:
        if size not in runs and size <= FARTHEST:
            runs[size] = _run(machines, size)
    wrong = tuple(_wrong(d, runs) for d in errors if _wrong(d, runs))
    wrong += tuple(d.message for d in found if " data" in f" {d.message} {d.reason}".replace(".data", ""))
    return Judged(_outcome(found, errors, runs), wrong)


def _run(machines: Sequence[ByteMachine], size: int) -> frozenset[str]:
    """The faults of kernels, each of which is given what the one before has left."""
    found, given = frozenset[str](), None
    try:
        for number, machine in enumerate(machines, start=1):
            faults = machine.run({"n": size}, 1, given)
            if machine.ended:
                return found | faults
            given = machine.left()
            found |= faults if number == len(machines) else faults - {"left"}
    except TooLongError:
        return _HARM | _OUTSIDE
    return found


def _wrong(found: Diagnostic, runs: dict[int, frozenset[str]]) -> str:
    """The words for an error that execution contradicts: at its size, or at every one if it names none."""
    seen, size = _SEEN.get(found.rule, frozenset()), (found.counterexample or {}).get("n")
    every = [faults for n, faults in runs.items() if size is None or n == size]
    if not seen or not every or any(faults & seen for faults in every):
        return ""
    return f"{found.message} ({size})"


def _outcome(found: list[Diagnostic], errors: list[Diagnostic], runs: dict[int, frozenset[str]]) -> Outcome:
    noted = any(d.rule == "SYM905" for d in found)
    if any(faults & _HARM for faults in runs.values()):
        return "harmful, found" if errors else "harmful, undecided" if noted else "harmful, missed"
    if any(faults for faults in runs.values()):
        return "race"
    return "harmless, error" if errors else "harmless, undecided" if noted else "harmless, clean"
