"""Findings as they are shown, apart from any format: diagnostics, fixes, reports."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from symalloc.program.span import Source, Span, SyntaxNode, innermost, span_of, split_lines
from symalloc.prover.domain import Proof, Verdict
from symalloc.shown import Shown, counted


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScript:
    """A Python source and its syntax tree; `lines` are those that the tree counts."""

    file: str
    lines: tuple[str, ...]
    tree: ast.Module

    def span(self, node: SyntaxNode) -> Span:
        """The place of `node`, in characters (`ast` counts bytes)."""
        return span_of(self.file, self.lines, node)

    def call_at(self, span: Span) -> ast.Call | None:
        """The call that starts at `span`; of several the one that ends there too, or else the longest."""
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        calls = [node for node in calls if self.span(node).start == span.start]
        exact = [call for call in calls if self.span(call).end == span.end]
        return max(exact or calls, key=lambda call: self.span(call).end, default=None)

    def statement_at(self, span: Span) -> ast.stmt | None:
        """The innermost statement around `span`."""
        statements = (node for node in ast.walk(self.tree) if isinstance(node, ast.stmt))
        return innermost(statements, self.span, span)

    def at(self, line: int, column: int = 1) -> Span:
        """The empty span in front of a column of `line`."""
        return Span(file=self.file, line=line, column=column, end_line=line, end_column=column)

    def indent(self, line: int) -> str:
        """The white space that `line` starts with."""
        text = self.lines[line - 1]
        return text[: len(text) - len(text.lstrip())]

    def stands_alone(self, statement: ast.stmt) -> bool:
        """True where nothing else stands on the statement's lines (a comment may)."""
        span = self.span(statement)
        before = self.lines[span.line - 1][: span.column - 1]
        after = self.lines[span.end_line - 1][span.end_column - 1 :].strip()
        return not before.strip() and (not after or after.startswith("#"))


def parse_user_script(source: Source) -> UserScript | None:
    """Parse the script in `source`; None where it is no Python."""
    try:
        tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return UserScript(file=source.file, lines=tuple(split_lines(source.text)), tree=tree)


if TYPE_CHECKING:
    from symalloc.rulebook.rule import Rule

CANNOT_BE_READ = "SYM902"


class Severity(StrEnum):
    """Severity of a finding.  Errors and warnings make the exit status 1; notes only with --strict."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """Place in the order of severities, 0 for the worst."""
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


FixCandidate: TypeAlias = Callable[[UserScript], Fix | None]
"""Makes a fix, not tried yet, in the script that a finding points into; None where it does not fit there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependent:
    """A place in `function` that another finding stands for; `constraint` is what does not hold there, None
    where a rule has none or nothing satisfies it.
    """

    rule: str
    constraint: str | None
    span: Span | None
    function: str = ""

    @property
    def said(self) -> str:
        """The rule, and the constraint if there is one."""
        return f"{self.rule}: {self.constraint}" if self.constraint else self.rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding, as it is shown.

    `counterexample` is a binding that breaks the rule, `smallest` that it is proved the smallest (without an
    empty tensor, where there is such a one), `consequence` its arithmetic ("20 B > 16 B"). `precondition` is
    a condition, proved equivalent, under which the rule holds. `path`: the branches on which it is a fault.
    `guarded`: whether a check at run time stops the program before the fault. `reason`: why nothing
    definite can be said. `stage`: the pass that brought the finding in, None for the module as it was given.
    `label` is the text under the carets. `constraint` is what does not hold (None for rules about lifetimes),
    and `binds` the variable that the instruction at fault binds: two stages of a module are compared by them.
    `dependents` are the places of a finding that stands for many. `alike`: the words that it has in common
    with others of its kind, of which one is shown. `of_kernel`: it is in memory
    that a kernel has for itself, which no plan changes. `candidates` are fixes to try; a report holds none.
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
    path: str = ""
    counterexample: Mapping[str, int] | None = None
    smallest: bool = False
    consequence: str | None = None
    precondition: str | None = None
    reason: str | None = None
    notes: tuple[str, ...] = ()
    help: str | None = None
    guarded: bool = False
    stage: str | None = None
    constraint: str | None = None
    binds: str = ""
    dependents: tuple[Dependent, ...] = ()
    alike: str = ""
    of_kernel: bool = False
    fixes: tuple[Fix, ...] = ()
    candidates: tuple[FixCandidate, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def of_rule(cls, rule: Rule, texts: Mapping[str, str], **more: Any) -> Diagnostic:
        """Make a finding of `rule` that takes no proof, with `texts` for the names in its message."""
        more = {"message": rule.message_about(texts) or "", "label": rule.label, **more}
        return cls(rule=rule.id, name=rule.name, severity=Severity(rule.severity), verdict=None, **more)

    @property
    def kind(self) -> tuple[str, str, str]:
        """The rule, and the module and the function in which it is broken."""
        return self.rule, self.module, self.function

    @property
    def spans(self) -> tuple[Span, ...]:
        """The places that it points at."""
        spans = self.span, *(label.span for label in self.labels), *(one.span for one in self.dependents)
        return tuple(span for span in spans if span is not None)

    @property
    def is_brief(self) -> bool:
        """True if it is shown on one line: a declared bound, which its places are not like."""
        return bool(self.dependents) and not self.alike

    @property
    def one_line(self) -> str:
        """The message on one line, with the pass that brought the finding in."""
        message = " ".join(self.message.split())
        return f"{message} [found after {self.stage}]" if self.stage else message

    @property
    def fix(self) -> Fix | None:
        """The first fix offered, safe ones before others."""
        return min(self.fixes, key=lambda f: not f.safe, default=None)


@dataclass(slots=True, kw_only=True)
class LintSummary:
    """Counts of functions and of constraints by verdict; who decided; seconds of wall time.

    `runtime_check` counts the constraints that depend on the shapes, `guarded` those of them that the program
    checks when it runs, `unknown` those that could not be decided.  `data_dependent` counts the indices in
    kernels that are not judged, because they depend on data.  `by_z3` counts the constraints that z3 decided.
    """

    functions: int = 0
    always_valid: int = 0
    always_invalid: int = 0
    runtime_check: int = 0
    guarded: int = 0
    unknown: int = 0
    data_dependent: int = 0
    by_z3: int = 0
    seconds: float = 0.0

    @property
    def constraints(self) -> int:
        """All constraints."""
        return self.always_valid + self.always_invalid + self.runtime_check

    @property
    def by_solver(self) -> Mapping[str, int]:
        """The constraints decided by z3, and by the layers of the prover before it."""
        return {"cascade": self.constraints - self.unknown - self.by_z3, "z3": self.by_z3}

    def count(self, proof: Proof, *, certain: bool = True) -> None:
        """Add one constraint; at a site that is not `certain` no verdict is definite."""
        self.by_z3 += proof.decided_by == "z3" and not proof.unknown
        if proof.guarded:
            self.runtime_check += 1
            self.guarded += 1
        elif proof.verdict is Verdict.RUNTIME_CHECK or not certain:
            self.runtime_check += 1
            self.unknown += proof.unknown
        elif proof.verdict is Verdict.ALWAYS_INVALID:
            self.always_invalid += 1
        else:
            self.always_valid += 1

    def add(self, other: LintSummary) -> None:
        """Add all counts of `other`."""
        for name in LintSummary.__slots__:
            more = getattr(other, name)
            if more:
                setattr(self, name, getattr(self, name) + more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Shown):
    """All findings of one run, worst first within a file; iterating yields the diagnostics.

    `skipped` counts files in directories that were passed over because they hold no Relax module.
    `known` counts the findings of the baseline, which are left out, and `stale` those that are gone.
    """

    diagnostics: tuple[Diagnostic, ...]
    summary: LintSummary
    files: tuple[str, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    skipped: int = 0
    known: int = 0
    stale: int = 0

    def __repr__(self) -> str:
        counts = Counter(d.severity for d in self)
        found = ", ".join(counted(counts[s], s.value) for s in Severity if counts[s]) or "nothing found"
        return f"<Report: {found} in {counted(self.summary.functions, 'function')}>"

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self.diagnostics)

    def __len__(self) -> int:
        return len(self.diagnostics)

    def printed_after(self, span: Span) -> str | None:
        """The stage whose printed script `span` points into; None where it points into a file."""
        source = self.sources.get(span.file)
        return source.origin if source else None

    def file_span(self, diagnostic: Diagnostic) -> Span | None:
        """The span of a finding that points into a file: one in a printed script is of no use there."""
        span = diagnostic.span
        return None if span is None or self.printed_after(span) else span

    @property
    def unread(self) -> tuple[str, ...]:
        """The files that could not be read in full: not everything asked for was verified."""
        return tuple(dict.fromkeys(d.file for d in self if d.rule == CANNOT_BE_READ))

    @property
    def known_remarks(self) -> tuple[str, ...]:
        """The findings of the baseline that are left out, and those that are gone, in words."""
        left_out = (f"{counted(self.known, 'known finding')} left out",) if self.known else ()
        gone = (f"{counted(self.stale, 'finding')} of the baseline gone",) if self.stale else ()
        return left_out + gone

    @property
    def ok(self) -> bool:
        """True where there is neither an error nor a warning."""
        return all(d.severity is Severity.NOTE for d in self.diagnostics)

    @classmethod
    def joined(cls, reports: Sequence[Report]) -> Report:
        """Join several reports into one."""
        summary = LintSummary()
        for report in reports:
            summary.add(report.summary)
        return cls(
            diagnostics=tuple(d for report in reports for d in report),
            summary=summary,
            files=tuple(file for report in reports for file in report.files),
            sources={file: source for report in reports for file, source in report.sources.items()},
            skipped=sum(report.skipped for report in reports),
            known=sum(report.known for report in reports),
            stale=sum(report.stale for report in reports),
        )
