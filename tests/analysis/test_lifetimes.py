"""Overwrites, through every kind of alias and on every kind of path."""

from __future__ import annotations

import pytest

from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.misuses import UnwrittenReads
from symalloc.analysis.timeline import Timeline
from symalloc.program.ir import Operand, Ownership, Program, TupleValue, Var
from symalloc.program.types import OpaqueType, StorageType, TupleType
from tests.program.build import Body, param, program_of, tensor_of


def pairs(program: Program, name: str = "main") -> set[tuple[str, str, bool]]:
    """(what is lost, what is written over it, whether that is certain)."""
    analysis = analyse(program)[name]
    reads, regions = UnwrittenReads(analysis.conflicts, analysis.content), analysis.points_to.regions
    found = (next(reads.overwritten(*one), None) for one in reads.overwriting())
    return {(regions[o.first].name, regions[o.second].name, o.certain) for o in found if o is not None}


class Two(Body):
    """Tensors `a` and `b` on one storage; `a` is written."""

    def __init__(self, *params: Var) -> None:
        super().__init__(*params)
        self.arena = self.storage(64)
        self.a = self.tensor(self.arena, 8, name="a")
        self.call("fill", self.a)

    def overwrite(self) -> None:
        self.b = self.tensor(self.arena, 8, name="b")
        self.call("fill", self.b)

    def part(self, source: Var, extent: int, offset: int) -> Var:
        return self.view(source, extent, offset=offset)

    def look(self, name: str, source: Var, *, pure: bool = True) -> Var:
        return self.packed(name, source, pure=pure, ownership=Ownership.FRESH, kind=OpaqueType())

    def impure(self, name: str, source: Var) -> Var:
        return self.look(name, source, pure=False)

    @property
    def lost(self) -> set[tuple[str, str, bool]]:
        return pairs(self.program())


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
        ("half = part a 4 4; fill b; fill a; read half", FINE),
        ("half = view c 4; fill half; fill b; read c; fill half; read c", {("v5", "b", True)}),
        ("shorter = reshape a 4; fill b; fill shorter; read a", LOST),
        ("half = view a 4; update half; read a; update a; read half", FINE),
        ("half = view a 4; fill b; read half", {("v8", "b", True)}),  # the view
    ],
)
def test_what_is_lost(steps: str, lost: set[tuple[str, str, bool]]) -> None:
    body = Two(param("x", 8))
    b, c = body.tensor(body.arena, 8, name="b"), body.tensor(body.arena, 8)
    far = body.tensor(body.storage(64), 8)
    body.follow(steps, x=body.params[0], a=body.a, b=b, c=c, far=far)
    assert body.lost == lost


def test_the_returned_tensor_is_read_by_the_caller() -> None:
    body = Two()
    body.overwrite()
    assert pairs(body.program(TupleValue((body.a,)))) == LOST


# -- contents that are written anew


def test_what_may_be_another_tensor_is_not_written_for_sure() -> None:
    body = Two(param("x", 8))
    either = body.branch(lambda: body.a, lambda: body.params[0])
    body.overwrite()
    body.call("fill", either)
    body.call("read", body.a)
    assert body.lost == LOST


@pytest.mark.parametrize("reads_there", [True, False])
def test_written_anew_on_one_side(reads_there: bool) -> None:
    """Only a read on the same side, or behind it through that side's value, sees nothing but the new."""
    body = Two(param("x", 8))
    body.overwrite()

    def anew() -> Operand:
        body.call("fill", body.a)
        return body.a

    result = body.branch(anew, lambda: body.params[0])
    body.call("read", result if reads_there else body.a)
    assert body.lost == (set() if reads_there else LOST)


# -- paths


def test_the_two_sides_of_an_if_may_share_memory() -> None:
    def side(name: str) -> Operand:
        made = body.tensor(arena, 8, name=name)
        body.call("fill", made)
        return made

    body = Body()
    arena = body.storage(64)
    result = body.branch(lambda: side("a"), lambda: side("b"))
    body.call("read", result)
    assert not pairs(body.program())


def test_a_write_on_one_side_is_enough() -> None:
    body = Two()

    def overwrite() -> Operand:
        body.overwrite()
        return body.a

    body.branch(overwrite, lambda: body.a)
    body.call("read", body.a)
    assert body.lost == LOST


def test_a_read_on_the_other_side_is_no_read() -> None:
    body = Two()

    def overwrite() -> Operand:
        body.overwrite()
        return TupleValue(())

    def read() -> Operand:
        body.call("read", body.a)
        return TupleValue(())

    body.branch(overwrite, read)
    assert not body.lost


def test_the_value_of_an_if_is_on_each_path_one_thing() -> None:
    """The If yields `a` or x; in the else-branch, where `a` is overwritten, it yields x."""
    body = Two(param("x", 8))

    def overwrite() -> Operand:
        body.overwrite()
        return body.params[0]

    result = body.branch(lambda: body.a, overwrite)
    body.call("read", result)
    assert not body.lost


def test_written_on_one_side_and_read_as_the_value_of_the_other() -> None:
    body = Body(param("x", 8))
    arena = body.storage(64)
    a = body.tensor(arena, 8, name="a")

    def write() -> Operand:
        body.call("fill", a)
        return body.params[0]

    result = body.branch(write, lambda: a)
    body.call("fill", body.tensor(arena, 8, name="b"))
    body.call("read", result)
    assert not pairs(body.program())


def test_writing_to_the_value_of_an_if() -> None:
    body = Two(param("x", 8))
    b = body.tensor(body.arena, 8, name="b")
    other = body.tensor(body.storage(8), 8, name="other")
    target = body.branch(lambda: b, lambda: other)
    body.call("fill", target)
    body.call("read", body.a)
    assert body.lost == LOST


# -- views


def test_views_of_one_arena_are_told_apart() -> None:
    body = Body()
    arena = body.tensor(body.storage(64), 64, name="arena")
    a, b = body.view(arena, 8), body.view(arena, 8, offset=32)
    body.call("fill", a)
    body.call("fill", b)
    body.call("read", a)
    assert pairs(body.program()) == {(a.name, b.name, True)}


# -- functions


def test_a_function_that_returns_its_argument() -> None:
    body = Two()
    other = body.function("callee", body.a, kind=tensor_of(8))
    body.overwrite()
    body.call("read", other)
    inner = Body(param("p", 8), name="callee")
    program = program_of(body.finish(), inner.finish(inner.alias(inner.params[0])))
    assert pairs(program) == LOST


def test_a_function_that_returns_memory_of_its_own() -> None:
    body = Two()
    other = body.function("callee", body.a, kind=tensor_of(8))
    body.overwrite()
    body.call("read", other)
    inner = Body(param("p", 8), name="callee")
    made = inner.tensor(inner.storage(8), 8)
    inner.call("copy", inner.params[0], made)
    assert not pairs(program_of(body.finish(), inner.finish(made)))


def test_a_function_that_writes_its_argument() -> None:
    body = Two()
    b = body.tensor(body.arena, 8, name="b")
    body.function("callee", b, kind=TupleType(fields=()))
    body.call("read", body.a)
    inner = Body(param("p", 8), name="callee")
    inner.call("fill", inner.params[0])
    assert pairs(program_of(body.finish(), inner.finish())) == LOST


def test_recursion_reaches_a_fixed_point() -> None:
    """callee returns its first argument, or what it returns itself with the arguments swapped: either."""
    inner = Body(param("p", 8), param("q", 8), name="callee")
    p, q = inner.params
    result = inner.branch(lambda: p, lambda: inner.function("callee", q, p, kind=tensor_of(8)))
    body = Two(param("x", 8))
    other = body.function("callee", body.params[0], body.a, kind=tensor_of(8))
    body.overwrite()
    body.call("read", other)
    assert pairs(program_of(body.finish(), inner.finish(result))) == LOST


def test_a_function_that_hands_a_storage_through() -> None:
    """What is placed on the returned storage lies on the one that was given."""
    body = Two()
    same = body.function("callee", body.arena, kind=StorageType())
    b = body.tensor(same, 8, name="b")
    body.call("fill", b)
    body.call("read", body.a)
    inner = Body(Var("s", StorageType()), name="callee")
    assert pairs(program_of(body.finish(), inner.finish(inner.params[0]))) == LOST


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
