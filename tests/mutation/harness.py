"""Plant faults, ask the interpreter and the linter, compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

import tvm
from tvm import relax

import symalloc
from tests.mutation.editable import rebuild, take_apart
from tests.mutation.operators import OPERATORS, Operator
from tests.mutation.oracle import Fault, examine
from tests.mutation.subjects import Subject

__all__ = ["FITTING", "Mutant", "Outcome", "judge", "mutants"]

# which rules may report a fault of a kind
FITTING: Mapping[str, frozenset[str]] = {
    "exceeds": frozenset({"SYM101"}),
    "view-exceeds": frozenset({"SYM107", "SYM101"}),
    "negative-offset": frozenset({"SYM102", "SYM111"}),
    "negative-extent": frozenset({"SYM103"}),
    "negative-size": frozenset({"SYM101", "SYM103"}),
    "misaligned": frozenset({"SYM104", "SYM108", "SYM110"}),
    "byte-offset": frozenset({"SYM104", "SYM112", "SYM303"}),
    "offset-overlooked": frozenset({"SYM112"}),
    "kernel-argument": frozenset({"SYM303", "SYM106"}),
    "overwritten": frozenset({"SYM203"}),
    "unwritten": frozenset({"SYM208"}),
    "arguments-overlap": frozenset({"SYM211"}),
    "use-after-kill": frozenset({"SYM201"}),
    "double-kill": frozenset({"SYM202"}),
    "not-in-scope": frozenset({"SYM204"}),
    "reshape": frozenset({"SYM302"}),
}
# the machine itself stops with an error, or copies, or nothing happens: these may be warnings.  So may be two
# arguments of a kernel in one memory: what the kernel does there the interpreter does not look at
CHECKED = frozenset(
    {
        *("arguments-overlap", "byte-offset", "double-kill", "kernel-argument", "misaligned", "reshape"),
        "view-exceeds",
    }
)

DOUBT = "are computed from the same values"  # so that one branch may rule out another


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A module with one change; `reference` does what it should do, None where the original does that."""

    subject: str
    operator: str
    change: str
    function: str
    module: tvm.IRModule
    reference: tvm.IRModule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What both say of one mutant; `rules` are those of the linter's errors, `warned` of its warnings.

    `doubted` are those of warnings about a path of which it is not known whether a call can take it.
    """

    mutant: Mutant
    faults: tuple[Fault, ...]
    rules: frozenset[str]
    warned: frozenset[str] = frozenset()
    doubted: frozenset[str] = frozenset()

    @property
    def real(self) -> bool:
        """Whether it can go wrong."""
        return bool(self.faults)

    @property
    def harmless(self) -> bool:
        """Whether nothing was seen to go wrong."""
        return not self.faults

    @property
    def found(self) -> bool:
        """Whether the linter reports an error, or the warning that is due to a fault of lesser kind."""
        return bool(self.rules) or self.fitting

    @property
    def fitting(self) -> bool:
        """Whether one of the findings is of a rule that fits one of the faults."""
        return any(self._reported(f.kind) & FITTING.get(f.kind, frozenset()) for f in self.faults)

    def _reported(self, kind: str) -> frozenset[str]:
        return self.rules | (self.warned if kind in CHECKED else self.doubted)


def mutants(
    subjects: Iterable[Subject], *, tries: int, seed: int, operators: Mapping[str, Operator] = OPERATORS
) -> Iterator[Mutant]:
    """For every subject and operator, up to `tries` different mutants; the same for the same seed."""
    for name, mod in subjects:
        for operator, change in operators.items():
            random = Random(f"{name} {operator} {seed}")
            yield from _mutants_of(name, mod, (operator, change), tries, random)


def _mutants_of(
    name: str, mod: tvm.IRModule, operator: tuple[str, Operator], tries: int, random: Random
) -> Iterator[Mutant]:
    functions = [g for g, f in mod.functions_items() if isinstance(f, relax.Function)]
    kernels = {g.name_hint: f for g, f in mod.functions_items() if isinstance(f, tvm.tirx.PrimFunc)}
    seen: set[str] = set()
    for _ in range(tries):
        target = random.choice(functions)
        edited = take_apart(mod[target], kernels)
        change = operator[1](edited, random)
        if change is None or change in seen:
            continue
        seen.add(change)
        changed = {mod.get_global_var(kernel): new for kernel, new in edited.changed.items()}
        others = dict(mod.functions_items()) | changed | edited.added
        mutated, right = (
            body and tvm.IRModule(others | {target: rebuild(edited, body)}, attrs=mod.attrs)
            for body in (edited.body, edited.reference)
        )
        yield Mutant(
            subject=name,
            operator=operator[0],
            change=change,
            function=str(target.name_hint),
            module=mutated,
            reference=right,
        )


def judge(mutant: Mutant, *, seed: int = 0) -> Outcome:
    """Both answers on one mutant."""
    faults = examine(mutant.module, seed=seed)
    report = symalloc.lint(mutant.module, stage="as-is")
    errors = frozenset(d.rule for d in report if d.severity == "error")
    warned = frozenset(d.rule for d in report if d.severity == "warning")
    doubted = frozenset(d.rule for d in report if DOUBT in (d.reason or ""))
    return Outcome(mutant=mutant, faults=tuple(faults), rules=errors, warned=warned, doubted=warned & doubted)
