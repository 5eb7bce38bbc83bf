"""Fixes as they are offered: proposed, tried, linted again; all read in one go, for TVM starts slowly."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import symalloc
from symalloc.linter.diagnostic import Diagnostic, Fix, Report, Severity, TextEdit
from symalloc.linter.fixes import apply_edits, improves, rewrite
from symalloc.program.span import Span

HEAD = "from tvm.script import ir as I, relax as R, tirx as T\n"
SIZE = 'R.prim_value(0), R.str("global"), R.dtype("uint8")'
MODULES = f"""
@I.ir_module
class TwoTensors:
    @R.function(pure=False)
    def main(x: R.Tensor(("m", "n"), "float32")):
        m, n = T.int64(), T.int64()
        storage = R.memory.alloc_storage(R.shape([16]), {SIZE})
        a = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([m]), R.dtype("float32"))
        one = R.call_packed("f", a, ty_args=(R.Tensor((m,), "float32"),))
        b = R.memory.alloc_tensor(storage, R.prim_value(64), R.shape([m, n]), R.dtype("float16"))
        two = R.call_packed("f", b, ty_args=(R.Tensor((m, n), "float16"),))
        return two


@I.ir_module
class ElementsNotBytes:
    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32")):
        m = T.int64()
        storage = R.vm.alloc_storage(R.shape([m]), R.prim_value(0), R.dtype("float16"))
        a = R.vm.alloc_tensor(storage, R.prim_value(0), R.shape([m]), R.dtype("float32"))
        one = R.call_packed("f", a, ty_args=(R.Tensor((m,), "float32"),))
        return one


@I.ir_module
class SymbolOutOfScope:
    @R.function(pure=False)
    def main(x: R.Tensor(ndim=1, dtype="float32")):
        k = T.int64()
        storage = R.memory.alloc_storage(R.shape([16]), {SIZE})
        y = R.match_cast(x, R.Tensor((k,), "float32"))
        a = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([k]), R.dtype("float32"))
        one = R.call_packed("f", a, y, ty_args=(R.Tensor((k,), "float32"),))
        return one


@I.ir_module
class StorageSeenElsewhere:
    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32")):
        m = T.int64()
        storage = R.memory.alloc_storage(R.shape([16]), {SIZE})
        seen = R.call_packed("look", (storage, x), ty_args=(R.Tensor((m,), "float32"),))
        a = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([m]), R.dtype("float32"))
        one = R.call_packed("f", a, seen, ty_args=(R.Tensor((m,), "float32"),))
        return one


@I.ir_module
class KilledTwice:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        storage = R.memory.alloc_storage(R.shape([16]), {SIZE})
        a = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([4]), R.dtype("float32"))
        one = R.call_packed("f", x, a, ty_args=(R.Tensor((4,), "float32"),))
        _ = R.memory.kill_tensor(a)
        _1 = R.memory.kill_tensor(a)
        return one


# symalloc: allow(SYM102, SYM202) -- left over
@I.ir_module
class NothingToAllow:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return x
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    path = tmp_path_factory.mktemp("fixes") / "modules.py"
    path.write_text(HEAD + MODULES, encoding="utf-8")
    return symalloc.lint(path, select=["SYM101", "SYM102", "SYM202", "SYM90"])


def _findings(report: Report, module: str, rule: str) -> list[Diagnostic]:
    found = [d for d in report if d.rule == rule and d.module == module]
    assert found, [(d.rule, d.module, d.message) for d in report]
    return found


def _fixed(report: Report, fix: Fix) -> list[str]:
    """The lines that `fix` brings in."""
    before = next(iter(report.sources.values())).text
    after = apply_edits(before, fix.edits)
    return [line.strip() for line in after.split("\n") if line not in before.split("\n")]


def test_growing_covers_every_tensor_on_the_storage(report: Report) -> None:
    first, second = _findings(report, "TwoTensors", "SYM101")
    for finding in (first, second):
        grow = next(f for f in finding.fixes if f.safe)
        (line,) = _fixed(report, grow)
        assert line.startswith("storage = R.memory.alloc_storage(R.shape([T.max(")
        assert "m * n * 2 + 64" in line and "m * 4" in line
        assert grow.outcome == "always valid"


def test_asserting_one_of_two_leaves_the_other(report: Report) -> None:
    first, _ = _findings(report, "TwoTensors", "SYM101")
    check = next(f for f in first.fixes if not f.safe)
    assert _fixed(report, check) == ['R.assert_op(m <= 4, [m], format="need m <= 4, got m={}")']


def test_vm_storages_count_elements_of_their_type(report: Report) -> None:
    (finding,) = _findings(report, "ElementsNotBytes", "SYM101")
    assert finding.fix is not None
    (line,) = _fixed(report, finding.fix)
    assert line == 'storage = R.vm.alloc_storage(R.shape([m * 2]), R.prim_value(0), R.dtype("float16"))'


@pytest.mark.parametrize("module", ["SymbolOutOfScope", "StorageSeenElsewhere"])
def test_a_size_over_symbols_not_bound_yet_or_that_others_see_is_not_offered(
    report: Report, module: str
) -> None:
    (finding,) = _findings(report, module, "SYM101")
    assert [f.safe for f in finding.fixes] == [False]


def test_the_second_kill_goes(report: Report) -> None:
    (finding,) = _findings(report, "KilledTwice", "SYM202")
    assert finding.fix is not None and finding.fix.safe
    before = next(iter(report.sources.values())).text
    after = apply_edits(before, finding.fix.edits)
    assert before.split("\n")[finding.span.line - 1].strip() == "_1 = R.memory.kill_tensor(a)"  # type: ignore[union-attr]
    assert (before.count("kill_tensor"), after.count("kill_tensor")) == (2, 1)


def test_rules_that_allow_nothing_leave_the_comment(report: Report) -> None:
    found = _findings(report, "", "SYM901")
    assert [d.fix.title for d in found if d.fix] == [
        "remove `SYM102` from the comment",
        "remove `SYM202` from the comment",
    ]
    assert found[0].fix is not None
    assert _fixed(report, found[0].fix) == ["# symalloc: allow(SYM202) -- left over"]


def _edit(line: int, column: int, end_column: int, text: str, end_line: int | None = None) -> TextEdit:
    return TextEdit(span=Span("f.py", line, column, end_line or line, end_column), text=text)


def _finding(
    rule: str, *edits: TextEdit, safe: bool = True, severity: Severity = Severity.ERROR
) -> Diagnostic:
    fixes = (Fix(title="t", edits=edits, safe=safe),) if edits else ()
    return Diagnostic(rule=rule, name="n", severity=severity, verdict=None, message="m", fixes=fixes)


@pytest.mark.parametrize(
    ("text", "edits", "changed"),
    [
        (
            "one\ntwo\nthree\n",
            [_edit(1, 1, 4, "ONE"), _edit(2, 1, 1, "new\n"), _edit(3, 1, 1, "", end_line=4)],
            "ONE\nnew\ntwo\n",
        ),
        ("a\r\nb\r\n", [_edit(2, 1, 1, "x\n")], "a\r\nx\r\nb\r\n"),
        ("a\rb\n", [_edit(2, 1, 2, "c")], "a\rc\n"),
        ("a\nb", [_edit(2, 1, 1, "", end_line=3)], "a\n"),
    ],
)
def test_edits_replace_insert_and_delete_and_keep_the_ends_of_lines(
    text: str, edits: list[TextEdit], changed: str
) -> None:
    assert apply_edits(text, edits) == changed


@given(
    st.lists(st.text("abc é漢", max_size=6), min_size=1, max_size=6),
    st.sampled_from(["\n", "\r\n"]),
    st.data(),
)
def test_an_edit_changes_its_span_only(lines: list[str], end: str, data: st.DataObject) -> None:
    row = data.draw(st.integers(0, len(lines) - 1))
    start = data.draw(st.integers(0, len(lines[row])))
    stop = data.draw(st.integers(start, len(lines[row])))
    expected = list(lines)
    expected[row] = lines[row][:start] + "XY" + lines[row][stop:]
    changed = apply_edits(end.join(lines), [_edit(row + 1, start + 1, stop + 1, "XY")])
    assert changed == end.join(expected)


@pytest.mark.parametrize(
    ("before", "after", "target", "good"),
    [
        (["A", "B"], ["B"], "A", True),
        (["A", "B"], ["B"], None, True),
        (["A"], ["B"], "A", False),
        (["A", "A"], ["A"], "A", True),
        (["A"], ["A"], "A", False),
        (["A"], ["A"], None, False),
        (["A", "B"], ["B", "B"], "A", False),
    ],
)
def test_improves(before: list[str], after: list[str], target: str | None, good: bool) -> None:
    wanted = _finding(target) if target else None
    assert improves(map(_finding, before), list(map(_finding, after)), wanted) is good
    if wanted:  # a new note does no harm
        note = _finding("N", severity=Severity.NOTE)
        assert improves(map(_finding, before), [*map(_finding, after), note], wanted) is good


class _Linter:
    """Finds every capital letter, and offers to make it small; counts how often it is asked."""

    def __init__(self, *, refuses: str = "") -> None:
        self.refuses = refuses
        self.calls = 0

    def __call__(self, text: str) -> Sequence[Diagnostic]:
        self.calls += 1
        found = [
            _finding(letter, _edit(row, column, column + 1, letter.lower()))
            for row, line in enumerate(text.split("\n"), start=1)
            for column, letter in enumerate(line, start=1)
            if letter.isupper()
        ]
        return [*found, *(_finding("broken") for _ in range(9) if self.refuses and self.refuses in text)]


def test_all_fixes_that_do_not_touch_each_other_go_in_one_round() -> None:
    linter = _Linter()
    changed = rewrite("f.py", "A b\nC D\n", linter("A b\nC D\n"), linter, unsafe=False)
    assert (changed.after, changed.fixes, linter.calls) == ("a b\nc d\n", 3, 2)


def test_a_round_that_makes_things_worse_is_taken_back() -> None:
    linter = _Linter(refuses="ab")
    changed = rewrite("f.py", "AB", linter("AB"), linter, unsafe=False)
    assert (changed.after, changed.fixes) == ("aB", 1)


def test_unsafe_fixes_need_asking_for_and_of_two_for_one_place_one_is_made() -> None:
    def fixed(found: list[Diagnostic], *, unsafe: bool) -> tuple[str, int]:
        made = rewrite("f.py", "A", found, lambda _: (), unsafe=unsafe)
        return made.after, made.fixes

    found = [_finding("A", _edit(1, 1, 2, "a"), safe=False)]
    assert [fixed(found, unsafe=unsafe) for unsafe in (False, True)] == [("A", 0), ("a", 1)]
    twice = [_finding("A", _edit(1, 1, 2, letter)) for letter in "bc"]
    assert fixed(twice, unsafe=False) == ("b", 1)


def test_diff_is_unified() -> None:
    changed = rewrite("dir/f.py", "A\nb", _Linter()("A\nb"), _Linter(), unsafe=False)
    assert changed.diff() == (
        "--- a/dir/f.py\n+++ b/dir/f.py\n@@ -1,2 +1,2 @@\n-A\n+a\n b\n\\ No newline at end of file\n"
    )
