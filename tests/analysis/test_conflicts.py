"""Reuse conflicts: memory that is written before another use of it is done."""

from __future__ import annotations

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.analysis.sets import only_member
from symalloc.program.ir import Operand, Ownership
from tests.program.build import Body, param


def found(body: Body, result: Operand) -> list[tuple[int, int, bool]]:
    """Conflicts of the second parameter, written, with the first: (writer, reader, certain)."""
    analysis = analyse(body.program(result))["main"]
    x, y = roots(analysis)
    return [(c.writer, c.reader, c.certain) for c in analysis.conflicts.takeover(y, x)]


def roots(analysis: FunctionAnalysis) -> list[int]:
    numbers = (only_member(leaf.must) for leaf in analysis.points_to.parameters)
    return [number for number in numbers if number is not None]


def function() -> Body:
    return Body(param("x", "n"), param("y", "n"))


def test_before_at_once_and_after() -> None:
    body = function()
    x, y = body.params
    body.call("read", x)
    body.call("fill", y)
    assert found(body, y) == []
    body.call("copy", x, y)
    assert found(body, y) == [(1, 2, True), (2, 2, True)]
    body.call("read", x)
    assert found(body, y) == [(1, 2, True), (1, 3, True), (2, 3, True), (2, 2, True)]


def test_the_result_is_read_by_the_caller() -> None:
    body = function()
    body.call("fill", body.params[1])
    assert found(body, body.params[0]) == [(0, 1, True)]


def test_writes_count_and_branches_exclude_each_other() -> None:
    body = function()
    x, y = body.params

    def one() -> Operand:
        body.call("fill", y)
        return y

    def other() -> Operand:
        body.call("fill", x)
        return y

    body.branch(one, other)
    assert found(body, y) == []
    body.call("update", x)
    assert [(w, r) for w, r, _ in found(body, y)] == [(1, 5)]


def test_a_doubtful_alias() -> None:
    body = function()
    x, y = body.params
    may = body.packed("unknown", x, y)
    body.call("fill", y)
    body.call("read", may)
    assert found(body, y) == [(1, 2, False)]


def test_captures_and_uses_on_one_path() -> None:
    body = function()
    x, y = body.params
    body.packed("unknown", x)
    body.packed("fresh", y, ownership=Ownership.FRESH)
    analysis = analyse(body.program(y))["main"]
    conflicts = analysis.conflicts
    assert [list(conflicts.capturing(root)) for root in roots(analysis)] == [[0], []]
    assert conflicts.on_one_path(*roots(analysis))
