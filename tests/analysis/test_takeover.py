"""Where one memory is written before another is done with."""

from __future__ import annotations

from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.overwrites import Paths
from symalloc.analysis.takeover import clashes, keepers, meetings
from symalloc.program.model import Operand, Ownership
from tests.program.build import Body, param


def found(body: Body, result: Operand) -> list[tuple[int, int, bool]]:
    """Clashes of the second parameter, written, with the first."""
    analysis = analyse(body.program(result))["main"]
    points_to = analysis.points_to
    x, y = (cell.must.bit_length() - 1 for cell in points_to.parameters[:2])
    return [tuple(c) for c in clashes(points_to, Paths(points_to, analysis.effects), y, x)]  # type: ignore[misc]


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


def test_who_may_keep_and_who_meets() -> None:
    body = function()
    x, y = body.params
    body.packed("unknown", x)
    body.packed("fresh", y, ownership=Ownership.FRESH)
    analysis = analyse(body.program(y))["main"]
    points_to = analysis.points_to
    roots = [cell.must.bit_length() - 1 for cell in points_to.parameters]
    assert [list(keepers(points_to, analysis.effects, root)) for root in roots] == [[0], []]
    assert list(meetings(points_to, Paths(points_to, analysis.effects), *roots))
