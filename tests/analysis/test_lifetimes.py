"""Overwrites, through every kind of alias; paths and functions are beside an oracle in the linter's tests."""

from __future__ import annotations

import pytest

from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.misuses import UnwrittenReads
from symalloc.analysis.timeline import Timeline
from symalloc.program.ir import Ownership, Program, Var
from symalloc.program.types import OpaqueType, TupleType
from tests.program.build import Body, param, program_of


def pairs(program: Program, name: str = "main") -> set[tuple[str, str, bool]]:
    """(what is lost, what is written over it, whether that is certain)."""
    analysis = analyse(program)[name]
    reads, regions = UnwrittenReads(analysis.conflicts, analysis.content), analysis.points_to.regions
    found = (next(reads.overwritten(*one), None) for one in reads.overwriting())
    return {(regions[o.first].name, regions[o.second].name, o.certain) for o in found if o is not None}


class Two(Body):
    """Tensors `a` and `b` on one storage; `a` is written."""

    def look(self, name: str, source: Var, *, pure: bool = True) -> Var:
        return self.packed(name, source, pure=pure, ownership=Ownership.FRESH, kind=OpaqueType())

    def impure(self, name: str, source: Var) -> Var:
        return self.look(name, source, pure=False)


LOST = {("a", "b", True)}
DOUBTFUL = {("a", "b", False)}
FINE = set[tuple[str, str, bool]]()


@pytest.mark.parametrize(
    ("steps", "lost"),
    [
        ("read a; fill b", FINE),
        ("fill b; read a", LOST),
        ("copy a b", FINE),  # arguments of one kernel are compared elsewhere
        ("copy a b; read a", LOST),
        ("fill b; read c", FINE),
        ("fill far; read a", FINE),
        ("other = alias a; fill b; read other", LOST),
        ("other = reshape a 8; fill b; read other", LOST),
        ("other = settle a; fill b; read other", LOST),
        ("other = cast a 8; fill b; read other", LOST),
        ("pair = tuple x a; other = take pair 1; fill b; read other", LOST),
        ("pair = tuple x a; other = take pair 0; fill b; read other", FINE),
        ("other = argument a; fill b; read other", LOST),
        ("other = packed f a; fill b; read other", DOUBTFUL),  # it may return its argument
        ("fill b; _ = look vm.builtin.shape_of a", FINE),
        ("fill b; _ = look vm.builtin.check_tensor_info a", FINE),
        ("_ = impure dps b; read a", LOST),  # it fills what holds nothing
        ("_ = impure print a", FINE),  # and only reads what holds something
        ("fill b; read b; copy x a; read a", FINE),
        ("fill b; scatter a; read a", LOST),  # it may leave elements
        ("fill b; update a; read a", LOST),
        ("fill b; copy a a", LOST),
        ("fill b; half = view a 4; fill half; read a", LOST),
        ("half = view a 4 offset=4; fill b; fill a; read half", FINE),
        ("half = view c 4; fill half; fill b; read c; fill half; read c", {("c", "b", True)}),
        ("shorter = reshape a 4; fill b; fill shorter; read a", LOST),
        ("half = view a 4; update half; read a; update a; read half", FINE),
        ("half = view a 4; fill b; read half", {("half", "b", True)}),
    ],
)
def test_what_is_lost(steps: str, lost: set[tuple[str, str, bool]]) -> None:
    body = Two(param("x", 8))
    made = "s = storage 64; a = tensor s 8; fill a; b = tensor s 8; c = tensor s 8"
    body.follow(f"{made}; o = storage 64; far = tensor o 8; {steps}")
    assert pairs(body.program()) == lost


def test_memory_goes_behind_the_last_use() -> None:
    """Each tensor is made from the one before."""
    body = Body(param("x", 64))
    made = body.follow(
        "; ".join(f"s = storage 64; {b} = tensor s 64; copy {a} {b}" for a, b in ("xa", "ab", "bc"))
    )
    found = Timeline.of(body.program(made["c"]), "main")
    assert found.peak({}) == 128
    assert [(one.begin, one.end) for one in found.reservations] == [(0, 2), (1, 3), (2, 3)]
    assert found.reservations[-1].why == "result"


def test_what_is_known_is_the_least_where_an_object_holds_memory() -> None:
    body = Body(param("x", "n"))
    made = body.tensor(body.storage("64 * n"), "n")
    body.packed("mylib.make", body.params[0], kind=OpaqueType())
    found = Timeline.of(body.program(made), "main")
    assert found.peak({"n": 2}) is None and found.sums() is None
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
