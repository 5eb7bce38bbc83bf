"""What the linter says: findings, apart from how they are rendered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from symalloc.program.span import Source, Span
from symalloc.prover.verdict import Verdict

__all__ = ["CANNOT_BE_READ", "Diagnostic", "Fix", "Label", "Report", "Severity", "Summary", "TextEdit"]


CANNOT_BE_READ = "SYM902"


class Severity(StrEnum):
    """How bad a finding is.  Errors and warnings make the exit status 1; notes only with --strict."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A further place that a finding points at, with what is to be said of it."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEdit:
    """Replace what stands at `span` by `text`; an insertion has an empty span."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A change of the source that makes the finding go away.

    `safe`: the program keeps its meaning on every input on which it had one.  `outcome`: the verdict of
    linting the changed file again (a fix is not offered before that), such as "always valid".
    """

    title: str
    edits: tuple[TextEdit, ...]
    safe: bool
    outcome: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding.

    `counterexample` is the smallest binding found that breaks the rule, `consequence` its arithmetic ("20 B
    > 16 B"). `precondition` is a condition, proved equivalent, under which the rule holds.  `guarded`:
    whether a check at run time stops the program before the fault.  `reason`: why nothing definite can be
    said.  `stage`: the pass that brought the finding in, None for the module as it was given.  `label` is
    the text under the carets.  `constraint` is what does not hold (None for rules about lifetimes), and
    `binds` the variable that the instruction at fault binds: two stages of a module are compared by them.
    """

    rule: str
    name: str
    severity: Severity
    verdict: Verdict | None
    message: str
    module: str = ""
    function: str = ""
    file: str = ""
    span: Span | None = None
    label: str = ""
    labels: tuple[Label, ...] = ()
    counterexample: Mapping[str, int] | None = None
    consequence: str | None = None
    precondition: str | None = None
    reason: str | None = None
    notes: tuple[str, ...] = ()
    help: str | None = None
    guarded: bool = False
    stage: str | None = None
    constraint: str | None = None
    binds: str = ""
    fixes: tuple[Fix, ...] = ()

    @property
    def fix(self) -> Fix | None:
        """The first fix offered, safe ones before others."""
        return min(self.fixes, key=lambda f: not f.safe, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts over a report: functions, constraints, verdicts, who decided, seconds of wall time."""

    functions: int = 0
    constraints: int = 0
    always_valid: int = 0
    always_invalid: int = 0
    runtime_check: int = 0
    guarded: int = 0
    unknown: int = 0
    by_solver: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings of one run, worst first within a file; iterating yields the diagnostics.

    `skipped` counts files in directories that were passed over because they hold no Relax module.
    """

    diagnostics: tuple[Diagnostic, ...]
    summary: Summary
    files: tuple[str, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    skipped: int = 0

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self.diagnostics)

    def __len__(self) -> int:
        return len(self.diagnostics)

    @property
    def unread(self) -> tuple[str, ...]:
        """The files of which something could not be read, so that not everything asked for was verified."""
        return tuple(dict.fromkeys(d.file for d in self if d.rule == CANNOT_BE_READ))

    @property
    def ok(self) -> bool:
        """Whether there is neither an error nor a warning."""
        return all(d.severity is Severity.NOTE for d in self.diagnostics)
