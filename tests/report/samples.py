"""Reports made by hand, one for each thing that a renderer has to get right."""

from __future__ import annotations

from dataclasses import replace

from symalloc.linter.diagnostic import (
    Dependent,
    Diagnostic,
    Fix,
    Label,
    LintSummary,
    Report,
    Severity,
    TextEdit,
)
from symalloc.program.span import Source, Span
from symalloc.prover.domain import Verdict

FILE = "models/issue_17322.py"
TEXT = """\
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32")):
        m = T.int64()
        storage = R.memory.alloc_storage(R.shape([16]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        alloc = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([m]), R.dtype("float32"))
        wide = R.call_packed("形状.確認", alloc, R.str("éè"), storage)
\t\tresult = R.call_packed("tabbed", alloc)
        other = R.memory.alloc_tensor(
            storage,
            R.prim_value(64),
            R.shape([m]),
            R.dtype("float32"),
            runtime_device_ind=0,
            note="one",
            more="two",
        )
        return alloc
"""


def span(line: int, start: str, end: str | None = None, end_line: int | None = None) -> Span:
    """From the first `start` on `line` to the end of the first `end` on `end_line`."""
    lines = TEXT.split("\n")
    last = end_line or line
    column = lines[line - 1].index(start)
    stop = lines[last - 1].index(end or start, column if last == line else 0) + len(end or start)
    return Span(file=FILE, line=line, column=column + 1, end_line=last, end_column=stop + 1)


STORAGE = Label(span=span(9, "R.memory", '"float32"))'), text="`storage` reserves 16 B")
GROWN = Fix(
    title="storage is in bytes, m counts elements: R.shape([m * 4])",
    edits=(TextEdit(span=span(9, "R.shape([16])"), text="R.shape([m * 4])"),),
    safe=True,
    outcome="always valid",
)
GUARD = Fix(
    title='check it: R.assert_op(m <= 4, [m], format="need m <= 4, got m={}")',
    edits=(
        TextEdit(
            span=span(10, " ")._replace(end_column=1),
            text='        R.assert_op(m <= 4, [m], format="need m <= 4, got m={}")\n',
        ),
    ),
    safe=False,
    outcome="always valid",
)
OUTGROWN = Diagnostic(
    rule="SYM101",
    name="tensor-exceeds-storage",
    severity=Severity.ERROR,
    verdict=Verdict.RUNTIME_CHECK,
    message="tensor `alloc` can outgrow its storage: 4*m B at offset 0 does not fit in 16 B",
    module="Module",
    function="main",
    file=FILE,
    span=span(10, "R.memory", '"float32"))'),
    label="`alloc` needs 4*m B (m x float32)",
    labels=(STORAGE,),
    counterexample={"m": 5},
    smallest=True,
    consequence="20 B > 16 B",
    precondition="m <= 4",
    notes=("TVM hides this until m = 1025: 16 B is rounded up to one 4096 B page",),
    help="reserve 4*m B",
    fixes=(GROWN, GUARD),
)
PLAIN = replace(OUTGROWN, fixes=(), notes=(), labels=())
WIDE = replace(
    PLAIN,
    severity=Severity.WARNING,
    message="wide characters",
    span=span(11, "alloc", "alloc"),
    label="behind 形状",
    labels=(
        Label(span=span(11, '"形状.確認"'), text="six cells, 四 of them wide"),
        Label(span=span(11, "storage"), text="after é"),
    ),
)
TABBED = replace(
    PLAIN,
    message="a line with tabs",
    span=span(12, "R.call_packed", "alloc)"),
    label="after two tabs",
    smallest=False,
)
BLOCK = replace(
    PLAIN,
    message="a call over many lines",
    span=span(13, "R.memory", ")", 21),
    label="all of this",
    labels=(STORAGE, Label(span=span(15, "R.prim_value(64)"), text="offset 64 B")),
)
NO_SPAN = replace(
    PLAIN,
    severity=Severity.NOTE,
    message="a module that has no source",
    file="model.json",
    span=None,
    guarded=True,
    help="regenerate the module",
)
PRINTED = "models/issue_17322.py (Module after StaticPlanBlockMemory)"
FROM_PASS = replace(
    PLAIN,
    message="found in what a pass made",
    span=span(10, "R.memory", '"float32"))')._replace(file=PRINTED),
    stage="StaticPlanBlockMemory",
)
NEVER = replace(
    PLAIN,
    verdict=Verdict.ALWAYS_INVALID,
    message="it never fits",
    counterexample={"m": 1},
    consequence="64 B > 16 B",
    precondition=None,
)
EVERY_INPUT = replace(NEVER, message="constants only", counterexample={})
UNDECIDED = replace(
    PLAIN,
    severity=Severity.WARNING,
    message="not decided",
    counterexample=None,
    consequence=None,
    precondition=None,
    reason="z3 gave up after 100 ms",
)
ON_A_PATH = replace(
    PLAIN,
    message="only where control goes one way",
    counterexample=None,
    consequence=None,
    precondition=None,
    path="`c` is true and `n <= 4` is false",
)
BOUND = replace(
    PLAIN,
    rule="SYM401",
    name="declared-bound-not-enforced",
    severity=Severity.WARNING,
    message="`m` of `main` is declared to be at most 4, and nothing enforces it",
    help="assert m <= 4 on entry",
    dependents=(
        Dependent(
            rule="SYM101", constraint="m <= 4", function="main", span=span(10, "R.memory", '"float32"))')
        ),
        Dependent(rule="SYM201", constraint=None, function="main", span=span(11, "alloc", "alloc")),
        Dependent(rule="SYM101", constraint="m <= 4", span=None),
    ),
)
HOSTILE = replace(
    PLAIN,
    message="escape \x1b[31mred\x1b[0m and\nbreak % :: ,",
    label="\u202ereversed",
    file="dir with space/ü,:.py",
    span=None,
)
SUMMARY = LintSummary(
    functions=2,
    always_valid=1200,
    always_invalid=1,
    runtime_check=3,
    guarded=1,
    unknown=1,
    data_dependent=2,
    by_z3=1,
    seconds=0.25,
)
ALL = (OUTGROWN, WIDE, TABBED, BLOCK, NO_SPAN, FROM_PASS, NEVER, EVERY_INPUT, UNDECIDED, ON_A_PATH, BOUND)


def report(*diagnostics: Diagnostic) -> Report:
    """A report of `diagnostics`, with the sources that they point into."""
    sources = {
        FILE: Source(file=FILE, text=TEXT),
        PRINTED: Source(file=PRINTED, text=TEXT, origin="StaticPlanBlockMemory"),
    }
    return Report(diagnostics=diagnostics, summary=SUMMARY, files=(FILE, "model.json"), sources=sources)
