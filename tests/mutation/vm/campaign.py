"""Mutants judged by running them and by the linter, compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import tvm
from tvm import relax

import symalloc
from tests.mutation.harness import Mutant, mutants
from tests.mutation.operators import OPERATORS, RUN_OPERATORS, Operator
from tests.mutation.operators.bodies import ON_DATA, SCRATCH
from tests.mutation.vm.invocations import keeps_declared_bounds
from tests.mutation.vm.judging import (
    Finding,
    Judgement,
    Subject,
    UnusableError,
    VmOracle,
    counterexamples,
    lint_in_child,
)

__all__ = ["ALL_OPERATORS", "FITTING", "Campaign", "VmOutcome", "campaign"]

ALL_OPERATORS: Mapping[str, Operator] = {**OPERATORS, **RUN_OPERATORS}

_BOUNDS = frozenset({"SYM101", "SYM107", "SYM304"})
_LIVES = frozenset({"SYM203", "SYM204", "SYM206", "SYM210", "SYM211"})
_UNWRITTEN = frozenset({"SYM208", "SYM104"})
_KERNELS = frozenset({"SYM306", "SYM307", "SYM308"})
_CALLS = frozenset({"SYM104", "SYM106", "SYM108", "SYM110", "SYM112", "SYM303", "SYM304"})
_HANDLES = frozenset({"SYM201", "SYM202", "SYM204"})
# which rules may report what a run shows
FITTING: Mapping[str, frozenset[str]] = {
    "exceeds": _BOUNDS | {"SYM104"},  # an offset that is shifted is also misaligned
    "view-exceeds": _BOUNDS | {"SYM111"},  # in front of its source: the machine takes that for far behind
    "negative-offset": frozenset({"SYM102", "SYM111"}),
    "negative-extent": frozenset({"SYM103"}),
    "negative-size": frozenset({"SYM101", "SYM103"}),
    # a storage whose slot of the heap nothing has written is as large as what lies there
    "size": frozenset({"SYM101", "SYM103", "SYM105", "SYM208"}),
    "byte-offset": _CALLS,
    "split-element": frozenset({"SYM104", "SYM303"}),
    "refused": _CALLS | {"SYM302"},
    "reshape": frozenset({"SYM302"}),
    "use-after-kill": _HANDLES,
    "unwritten": _UNWRITTEN | _LIVES,
    "overwritten": _LIVES,
    "poison": _UNWRITTEN | _LIVES | _KERNELS,
    "second-call": _UNWRITTEN | _LIVES | _KERNELS | {"SYM209"},
    "arguments-overlap": _LIVES | _KERNELS,  # a kernel that leaves its argument finds another behind it
    "constant-written": frozenset({"SYM209"}),
    "out-of-bounds": _KERNELS | _CALLS | _BOUNDS,
    "operand-used-later": frozenset({"SYM203", "SYM210"}),
    "crash": _HANDLES | _KERNELS | _BOUNDS | _CALLS | _UNWRITTEN | _LIVES,
}
IN_KERNELS = frozenset(
    {"shift a store", "shift a load", "exchange indices", "extend a loop", "loosen a guard"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VmOutcome:
    """What running one mutant shows, and what the linter says; `module`: as JSON.

    `undeclared`: every fault is at sizes that the function called is declared not to get.  `ill_formed`: what
    TVM's own check says of the mutant, which may run all the same; empty where it says nothing.
    """

    subject: str
    operator: str
    change: str
    function: str
    judgement: Judgement
    findings: tuple[Finding, ...]
    module: str
    undeclared: bool = False
    ill_formed: str = ""

    @property
    def harmful(self) -> bool:
        """Whether a run goes wrong."""
        return bool(self.judgement.faults)

    @property
    def harmless(self) -> bool:
        """Whether every call does what the original does."""
        return self.judgement.same and not self.judgement.unbuilt and not self.unseen

    @property
    def errors(self) -> frozenset[str]:
        """The rules of the linter's errors."""
        return frozenset(f.rule for f in self.findings if f.severity == "error")

    @property
    def fitting(self) -> frozenset[str]:
        """Of the rules of errors and warnings, those that fit a fault."""
        reported = {f.rule for f in self.findings if f.severity in ("error", "warning")}
        fitting = {rule for kind in self.judgement.kinds for rule in FITTING[kind]}
        if self.harmful and self.operator in IN_KERNELS:  # whatever comes of it
            fitting |= _KERNELS
        if self.operator == "wrong slot":  # and whatever lies there
            fitting |= {"SYM208", "SYM307"}
        if self.undeclared:
            fitting.add("SYM401")
        return frozenset(fitting & reported)

    @property
    def on_data(self) -> bool:
        """Whether it goes wrong by an index that depends on data, and nothing is reported: such indices are
        counted by the linter, and not verified.
        """
        return self.harmful and not self.fitting and ON_DATA in self.change

    @property
    def missed(self) -> bool:
        """Whether it goes wrong, by something else than data, and no fitting rule says so."""
        return self.harmful and not self.fitting and not self.on_data

    @property
    def unverified(self) -> bool:
        """Whether it is missed, and the linter says at least that it could not verify something."""
        return self.missed and any(f.rule == "SYM904" for f in self.findings)

    @property
    def alarm(self) -> bool:
        """Whether nothing goes wrong and an error is reported, other than one that TVM reports, too."""
        known = frozenset({"SYM903"}) if "is not defined" in self.ill_formed else frozenset()
        return not (self.judgement.unbuilt or self.harmful or self.unseen) and bool(self.errors - known)

    @property
    def unseen(self) -> bool:
        """Whether the change is on a kernel's own buffer and no run shows it: what lies beside such a buffer
        is not guarded.
        """
        return SCRATCH in self.change and not self.harmful and not self.judgement.unbuilt


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The mutants of one subject: `excluded` says which calls of it, or why all of it, cannot be judged."""

    subject: str
    outcomes: tuple[VmOutcome, ...]
    excluded: tuple[str, ...]


def campaign(
    make: Callable[[], Subject], *, tries: int, seed: int, operators: Mapping[str, Operator] = ALL_OPERATORS
) -> Campaign:
    """Plant faults in one subject."""
    subject = make()
    try:
        oracle = VmOracle(subject)
    except UnusableError as error:
        return Campaign(subject=subject.name, outcomes=(), excluded=(str(error),))
    planted = mutants([(subject.name, subject.module)], tries=tries, seed=seed, operators=operators)
    outcomes = tuple(_outcomes(oracle, planted))
    excluded = tuple(f"{f.invocation}: {f.what}" for f in oracle.excluded)
    return Campaign(subject=subject.name, outcomes=outcomes, excluded=excluded)


def _outcomes(oracle: VmOracle, planted: Iterator[Mutant]) -> Iterator[VmOutcome]:
    symalloc.lint(oracle.subject.module, stage="as-is")  # children have what it imports and keeps
    known = {(f.rule, f.message) for f in lint_in_child(oracle.subject.module)}
    for mutant in planted:
        findings = [f for f in lint_in_child(mutant.module) if (f.rule, f.message) not in known]
        judgement = oracle.judge(mutant.module, counterexamples(mutant.module, findings), mutant.reference)
        declared = [keeps_declared_bounds(oracle.subject.module, f.invocation) for f in judgement.faults]
        yield VmOutcome(
            subject=mutant.subject,
            operator=mutant.operator,
            change=mutant.change,
            function=mutant.function,
            judgement=judgement,
            findings=tuple(findings),
            module=tvm.ir.save_json(mutant.module),
            undeclared=not any(declared),
            ill_formed=_ill_formed(mutant.module),
        )


def _ill_formed(module: tvm.IRModule) -> str:
    try:
        relax.analysis.well_formed(module)
    except Exception as error:  # of the kind that its part of TVM raises
        return str(error)
    return ""
