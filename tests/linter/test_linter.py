"""Findings that later stages repeat under other names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest

from symalloc.linter.diagnostic import Diagnostic, Severity
from symalloc.linter.lint_options import LintOptions, matches_file
from symalloc.linter.linter import Linter, fresh_findings
from symalloc.program import ir
from symalloc.program.reading import FileResult, ReadProblem
from symalloc.program.span import NumberedSpan, Source, Span, numbered
from symalloc.program.types import OpaqueType
from symalloc.rulebook.rule import RuleError
from tests.program.build import F32, Body, param
from tests.report import samples

FILE = "model.py"
TEXT = "first\nsecond\nthird\n"
PRINTED = "import something\n" * 40


PROBLEM = ReadProblem(file=FILE, message="cannot be read: it is upside down", hint="turn it")


def _reading(*programs: ir.Program, source: Source | None = None) -> FileResult:
    return FileResult(file=FILE, programs=programs, source=source)


def _span(line: int, file: str = FILE) -> Span:
    return Span(file=file, line=line, column=1, end_line=line, end_column=6)


@dataclass(frozen=True)
class _Printed:
    """A script in which the binding of each number stands on the line of that number."""

    origin: str

    def located(self, spans: Iterable[Span]) -> tuple[Source, dict[Span, Span]]:
        found = {place: _span(place.line) for place in spans if isinstance(place, NumberedSpan)}
        return Source(file=FILE, text=PRINTED, origin=self.origin), found


def _program(stage: str = "as-is", size: int = 16, line: int = 2, *extra: ir.Instruction) -> ir.Program:
    """`size` bytes for m floats, at `line`; a script that was printed, where the stage is a pass."""
    at = _span if stage == "as-is" else lambda number: numbered("main", number)
    body = Body(param("x", "m", dtype=F32))
    storage = body.storage(size, "storage", span=at(1))
    alloc = body.tensor(storage, "m", dtype=F32, name="alloc", span=at(line))
    for one in extra:
        body.emit(one)
    used = body.packed("f", alloc, ownership=ir.Ownership.FRESH, pure=False)
    main = body.finish(used, symbols={"m": ir.Origin.DIMENSION})
    source = Source(file=FILE, text=TEXT) if stage == "as-is" else _Printed(stage)
    return ir.Program(name="Module", functions={"main": main}, kernels={}, stage=stage, source=source)


def _linter(**options: object) -> Linter:
    return Linter(replace(LintOptions(select=("SYM101", "SYM9")), **options))  # type: ignore[arg-type]


def _lint(reading: FileResult, **options: object) -> tuple[Diagnostic, ...]:
    return _linter(**options).lint(reading).report.diagnostics


@pytest.mark.parametrize(
    ("stage", "asked", "severity"),
    [
        ("StaticPlanBlockMemory", "auto", "note"),
        ("StaticPlanBlockMemory", "all", "warning"),
        ("as-is", "auto", "warning"),
    ],
)
def test_a_bound_that_only_an_unasked_plan_relies_on_is_a_note(stage: str, asked: str, severity: str) -> None:
    program = _program(stage)
    functions = {name: replace(one, declared_upper={"m": 4}) for name, one in program.functions.items()}
    (found,) = _lint(
        _reading(replace(program, functions=functions)), select=("SYM101", "SYM401"), stage=asked
    )
    assert (found.rule, str(found.severity)) == ("SYM401", severity)


def test_printed_scripts_are_told_from_the_file() -> None:
    stages = _program(), _program("Later", size=32, line=30)
    report = _linter().lint(_reading(*stages, source=Source(file=FILE, text=TEXT))).report
    own, printed = report.diagnostics
    assert own.span is not None and printed.span is not None
    assert report.sources[own.span.file].text == TEXT
    assert report.sources[printed.span.file].text == PRINTED
    assert (own.file, printed.file) == (FILE, FILE)
    assert printed.span.file == "model.py (Module after Later)"


def test_functions_count_once_and_constraints_per_stage() -> None:
    summary = _linter().lint(_reading(_program(), _program("Later"))).report.summary
    assert summary.functions == 1
    assert summary.constraints == summary.always_valid + summary.always_invalid + summary.runtime_check
    assert summary.runtime_check == 2


def test_a_problem_is_an_error_that_cannot_be_ignored() -> None:
    (finding,) = _lint(FileResult(file=FILE, problems=(PROBLEM,)), per_file_ignores={"*": ("SYM902",)})
    assert (finding.rule, finding.severity) == ("SYM902", Severity.ERROR)
    assert finding.message == "cannot be read: it is upside down"
    assert finding.help == "turn it"
    assert _lint(FileResult(file=FILE, problems=(PROBLEM,)), select=("SYM1",))


def test_comments_count_as_unused_only_where_all_was_read() -> None:
    source = Source(file=FILE, text="first\nsecond  # symalloc: allow(SYM903)\nthird\n")
    whole = _reading(_program(size=0), source=source)
    assert [d.rule for d in _lint(whole)] == ["SYM101", "SYM901"]
    broken = replace(whole, problems=(PROBLEM,))
    assert [d.rule for d in _lint(broken)] == ["SYM902", "SYM101"]
    assert [d.rule for d in _lint(whole, stage="planned")] == ["SYM101"]


def test_an_allowed_finding_is_gone() -> None:
    source = Source(file=FILE, text="first\nsecond  # symalloc: allow(SYM101)\nthird\n")
    assert _lint(_reading(_program(), source=source)) == ()


@pytest.mark.parametrize(("pattern", "left"), [("*.py", 0), ("model.*", 0), ("tests/*", 1)])
def test_rules_ignored_by_file(pattern: str, left: int) -> None:
    found = _lint(_reading(_program()), per_file_ignores={pattern: ("SYM1",)})
    assert len(found) == left


def test_what_is_not_understood_comes_last_unless_strict_makes_it_an_error() -> None:
    strange = ir.NotUnderstood(var=ir.Var("s", OpaqueType()), span=_span(1), what="a closure")
    reading = _reading(_program("as-is", 16, 3, strange))
    plain, strict = ([(d.rule, str(d.severity)) for d in _lint(reading, strict=s)] for s in (False, True))
    assert plain == [("SYM101", "error"), ("SYM904", "warning")]
    assert sorted(strict) == [("SYM101", "error"), ("SYM904", "error")]


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(RuleError, match="SYM777"):
        _linter(per_file_ignores={"*": ("SYM777",)})


@pytest.mark.parametrize(
    ("file", "pattern", "matches"),
    [
        ("a/b/c.py", "*.py", True),
        ("a/b/c.py", "c.py", True),
        ("a/b/c.py", "a/b", True),
        ("a/b/c.py", "a/b/", True),
        ("a/b/c.py", "a/*", True),
        ("a/b/c.py", "b", False),
        ("a/b/c.py", "d/*", False),
    ],
)
def test_file_patterns(file: str, pattern: str, matches: bool) -> None:
    assert matches_file(file, pattern) is matches


SPAN = Span(file="m.py", line=2, column=5, end_line=2, end_column=9)
FILES = {"m.py": Source(file="m.py", text="a\nb\n")}
PRINTED_FILES = {"m.py": Source(file="m.py", text="a\nb\n", origin="Later")}


def finding(message: str, **fields: object) -> Diagnostic:
    given = {"module": "M", "function": "main", "span": None, **fields}
    return replace(samples.PLAIN, rule="SYM107", message=message, **given)  # type: ignore[arg-type]


def stages(*found: list[Diagnostic], sources: dict[str, Source] = FILES) -> list[list[str]]:
    fresh = (fresh_findings(stage, found[:number], sources) for number, stage in enumerate(found))
    return [[d.message for d in stage] for stage in fresh]


def test_what_was_renamed_makes_no_new_finding() -> None:
    """KillAfterLastUse calls `a` by the name of what it stands for: the constraint is the same."""
    before = finding("view `v` of `a`", binds="v", constraint="n <= m")
    operand = finding("view `v` of `alloc`", binds="v", constraint="n <= m")
    variable = finding("view `alloc` of `a`", binds="alloc", constraint="n <= m")
    for after in (operand, variable):
        assert stages([before], [after], [after]) == [["view `v` of `a`"], [], []]


@pytest.mark.parametrize(
    "other",
    [
        finding("new", binds="v", constraint="n <= k"),
        finding("new", binds="v", constraint="n <= m", function="other"),
        finding("new", binds="v", constraint="n <= m", module="N"),
        finding("new", binds="v"),
    ],
)
def test_what_differs_is_new(other: Diagnostic) -> None:
    before = finding("old", binds="v", constraint="n <= m")
    assert stages([before], [other]) == [["old"], ["new"]]


def test_more_of_a_constraint_than_before_is_new() -> None:
    before = finding("old", binds="v", constraint="n <= m")
    renamed = finding("renamed", binds="w", constraint="n <= m")
    added = finding("added", binds="u", constraint="n <= m")
    assert stages([before], [before, added]) == [["old"], ["added"]]
    assert stages([before], [renamed, added]) == [["old"], ["added"]]
    assert stages([before], [], [renamed, added]) == [["old"], [], ["added"]]


def test_lifetimes_are_told_apart_by_message_or_place() -> None:
    before, other = finding("`a` after its kill", binds="b"), finding("`c` after its kill", binds="b")
    assert stages([before], [before, other]) == [["`a` after its kill"], ["`c` after its kill"]]
    here, there = finding("here", span=SPAN), finding("there", span=SPAN)
    assert stages([here], [there]) == [["here"], []]
    assert stages([here], [there], sources=PRINTED_FILES) == [["here"], ["there"]]
