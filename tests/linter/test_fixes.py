"""Fixes as they are offered: proposed, tried, linted again; all read in one go, for TVM starts slowly."""

from __future__ import annotations

import pytest

import symalloc
from symalloc.linter.diagnostic import Diagnostic, Fix, Report
from symalloc.linter.fixes import apply_edits

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
