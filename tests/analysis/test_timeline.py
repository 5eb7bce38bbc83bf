"""The timeline of a call: what registers hold, on every path and in every function that is called."""

from __future__ import annotations

from symalloc.analysis.timeline import Timeline
from symalloc.program.ir import Program
from symalloc.program.types import OpaqueType, TupleType
from tests.program.build import Body, param, program_of


def chain(*names: str) -> Program:
    """A function that makes one tensor of 64 bytes from another, each dropped behind its last use."""
    body = Body(param("x", 64))
    before = body.params[0]
    for name in names:
        after = body.tensor(body.storage(64), 64, name=name)
        body.call("copy", before, after)
        before = after
    return body.program(before)


def test_memory_goes_behind_the_last_use() -> None:
    found = Timeline.of(chain("a", "b", "c"), "main")
    assert found.peak({}) == 128
    assert [(one.begin, one.end) for one in found.reservations] == [(0, 2), (1, 3), (2, 3)]
    assert found.reservations[-1].why == "result"


def test_what_is_known_is_the_least_where_an_object_holds_memory() -> None:
    body = Body(param("x", "n"))
    made = body.tensor(body.storage("64 * n"), "n")
    body.packed("mylib.make", body.params[0], kind=OpaqueType())
    found = Timeline.of(body.program(made), "main")
    assert found.peak({"n": 2}) is None
    assert found.sums() is None
    assert found.not_known is not None
    assert found.known.peak({"n": 2}) == 128


def test_what_calls_within_themselves_hold_is_not_known() -> None:
    within, around = Body(param("x", "n"), name="step"), Body(param("y", "m"))
    for body in (within, around):
        body.call("fill", body.tensor(body.storage(64), 64))
        body.function("step", body.params[0], kind=TupleType(fields=()))
    found = Timeline.of(program_of(within.finish(private=True), around.finish()), "main")
    assert found.problem is not None
    assert found.peak({"n": 1, "m": 1}) is None
