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


def test_a_size_over_symbols_not_bound_yet_is_not_offered(report: Report) -> None:
    (finding,) = _findings(report, "SymbolOutOfScope", "SYM101")
    assert [f.safe for f in finding.fixes] == [False]


def test_a_storage_that_something_else_sees_keeps_its_size(report: Report) -> None:
    (finding,) = _findings(report, "StorageSeenElsewhere", "SYM101")
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


def _span(line: int, column: int, end_line: int, end_column: int) -> Span:
    return Span(file="f.py", line=line, column=column, end_line=end_line, end_column=end_column)


def _edit(line: int, column: int, end_column: int, text: str) -> TextEdit:
    return TextEdit(span=_span(line, column, line, end_column), text=text)


def _finding(
    rule: str, *edits: TextEdit, safe: bool = True, severity: Severity = Severity.ERROR
) -> Diagnostic:
    fixes = (Fix(title="t", edits=edits, safe=safe),) if edits else ()
    return Diagnostic(rule=rule, name="n", severity=severity, verdict=None, message="m", fixes=fixes)


def test_edits_replace_insert_and_delete() -> None:
    text = "one\ntwo\nthree\n"
    edits = [_edit(1, 1, 4, "ONE"), _edit(2, 1, 1, "new\n"), TextEdit(span=_span(3, 1, 4, 1), text="")]
    assert apply_edits(text, edits) == "ONE\nnew\ntwo\n"


def test_line_ends_are_kept() -> None:
    assert apply_edits("a\r\nb\r\n", [_edit(2, 1, 1, "x\n")]) == "a\r\nx\r\nb\r\n"
    assert apply_edits("a\rb\n", [_edit(2, 1, 2, "c")]) == "a\rc\n"


def test_a_last_line_without_end() -> None:
    assert apply_edits("a\nb", [TextEdit(span=_span(2, 1, 3, 1), text="")]) == "a\n"


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


def test_a_new_note_does_no_harm() -> None:
    note = _finding("N", severity=Severity.NOTE)
    assert improves([_finding("A")], [note], _finding("A"))


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
    assert changed.after == "a b\nc d\n"
    assert changed.fixes == 3
    assert linter.calls == 2


def test_a_round_that_makes_things_worse_is_taken_back() -> None:
    linter = _Linter(refuses="ab")
    changed = rewrite("f.py", "AB", linter("AB"), linter, unsafe=False)
    assert changed.after == "aB"
    assert changed.fixes == 1


def test_unsafe_fixes_need_asking_for() -> None:
    found = [_finding("A", _edit(1, 1, 2, "a"), safe=False)]
    kept = rewrite("f.py", "A", found, lambda _: (), unsafe=False)
    assert (kept.after, kept.fixes) == ("A", 0)
    assert rewrite("f.py", "A", found, lambda _: (), unsafe=True).after == "a"


def test_of_two_fixes_for_one_place_one_is_made() -> None:
    found = [_finding("A", _edit(1, 1, 2, "b")), _finding("A", _edit(1, 1, 2, "c"))]
    assert rewrite("f.py", "A", found, lambda _: (), unsafe=False).after == "b"


def test_diff_is_unified() -> None:
    changed = rewrite("dir/f.py", "A\nb", _Linter()("A\nb"), _Linter(), unsafe=False)
    assert changed.diff() == (
        "--- a/dir/f.py\n+++ b/dir/f.py\n@@ -1,2 +1,2 @@\n-A\n+a\n b\n\\ No newline at end of file\n"
    )
