"""Overwrites, through every kind of alias and on every kind of path."""

from __future__ import annotations

import pytest

from symalloc.analysis.interprocedural import analyse
from symalloc.program.ir import Operand, Ownership, Program, TupleValue, Var
from symalloc.program.types import OpaqueType, StorageType, TupleType
from tests.program.build import Body, param, program_of, tensor_of


def pairs(program: Program, name: str = "main") -> set[tuple[str, str, bool]]:
    """(what is lost, what is written over it, whether that is certain)."""
    analysis = analyse(program)[name]
    conflicts, regions = analysis.conflicts, analysis.points_to.regions
    candidates = conflicts.candidates(analysis.live)
    found = (next(conflicts.overwrites(*candidate), None) for candidate in candidates)
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

    @property
    def lost(self) -> set[tuple[str, str, bool]]:
        return pairs(self.program())


LOST = {("a", "b", True)}


def test_reuse_after_the_last_read_is_fine() -> None:
    body = Two()
    body.call("read", body.a)
    body.overwrite()
    assert not body.lost


def test_read_after_the_write() -> None:
    body = Two()
    body.overwrite()
    body.call("read", body.a)
    assert body.lost == LOST


def test_arguments_of_one_kernel_are_compared_elsewhere() -> None:
    body = Two()
    b = body.tensor(body.arena, 8, name="b")
    body.call("copy", body.a, b)
    assert not body.lost
    body.call("read", body.a)
    assert body.lost == LOST


def test_a_tensor_nobody_wrote_holds_nothing() -> None:
    body = Body()
    arena = body.storage(64)
    a = body.tensor(arena, 8)
    body.call("fill", body.tensor(arena, 8))
    body.call("read", a)
    assert not pairs(body.program())


def test_different_storages_are_different_memory() -> None:
    body = Two()
    body.call("fill", body.tensor(body.storage(64), 8))
    body.call("read", body.a)
    assert not body.lost


@pytest.mark.parametrize("how", ["alias", "reshape", "settle", "cast", "tuple", "argument"])
def test_through_an_alias(how: str) -> None:
    body = Two()
    if how == "tuple":
        other = body.take(body.tuple(param("x", 8), body.a), 1)
    elif how == "argument":
        other = body.packed("f", body.a, ownership=Ownership.ARGUMENT)
    elif how == "cast":
        other = body.cast(body.a, 8)
    elif how == "reshape":
        other = body.reshape(body.a, 8)
    else:
        other = body.alias(body.a) if how == "alias" else body.settle(body.a)
    body.overwrite()
    body.call("read", other)
    assert body.lost == LOST


def test_the_other_field_of_a_tuple_is_another_tensor() -> None:
    body = Two(param("x", 8))
    other = body.take(body.tuple(body.params[0], body.a), 0)
    body.overwrite()
    body.call("read", other)
    assert not body.lost


def test_what_a_function_of_unknown_ownership_returns_is_doubtful() -> None:
    body = Two()
    other = body.packed("f", body.a)
    body.overwrite()
    body.call("read", other)
    assert body.lost == {("a", "b", False)}


@pytest.mark.parametrize("name", ["vm.builtin.shape_of", "vm.builtin.check_tensor_info"])
def test_what_looks_at_a_shape_reads_nothing(name: str) -> None:
    body = Two()
    body.overwrite()
    body.packed(name, body.a, ownership=Ownership.FRESH, kind=OpaqueType())
    assert not body.lost


def test_the_returned_tensor_is_read_by_the_caller() -> None:
    body = Two()
    body.overwrite()
    assert pairs(body.program(TupleValue((body.a,)))) == LOST


def test_an_impure_function_fills_what_holds_nothing() -> None:
    body = Two()
    b = body.tensor(body.arena, 8, name="b")
    body.packed("dps", b, pure=False, ownership=Ownership.FRESH, kind=OpaqueType())
    body.call("read", body.a)
    assert body.lost == LOST


def test_an_impure_function_only_reads_what_holds_something() -> None:
    body = Two(param("x", 8))
    body.packed("print", body.a, pure=False, ownership=Ownership.FRESH, kind=OpaqueType())
    assert not body.lost


# -- contents that are written anew


def test_what_is_written_anew_in_full_is_not_needed() -> None:
    body = Two(param("x", 8))
    body.overwrite()
    body.call("read", body.b)
    body.call("copy", body.params[0], body.a)
    body.call("read", body.a)
    assert not body.lost


@pytest.mark.parametrize("kernel", ["scatter", "update"])
def test_a_kernel_that_may_leave_elements_needs_them(kernel: str) -> None:
    body = Two()
    body.overwrite()
    body.call(kernel, body.a)
    body.call("read", body.a)
    assert body.lost == LOST


def test_a_kernel_that_reads_what_it_writes_anew_needs_it() -> None:
    body = Two()
    body.overwrite()
    body.call("copy", body.a, body.a)
    assert body.lost == LOST


def test_a_part_written_anew_leaves_the_rest_needed() -> None:
    body = Two()
    body.overwrite()
    body.call("fill", body.view(body.a, 4))
    body.call("read", body.a)
    assert body.lost == LOST


def test_a_whole_written_anew_ends_the_need_for_its_parts() -> None:
    body = Two()
    part = body.view(body.a, 4, offset=4)
    body.overwrite()
    body.call("fill", body.a)
    body.call("read", part)
    assert not body.lost


def test_a_whole_is_needed_again_in_front_of_a_part_written_anew() -> None:
    body = Body()
    arena = body.storage(64)
    a = body.tensor(arena, 8, name="a")
    part = body.view(a, 4)
    body.call("fill", part)
    body.call("fill", body.tensor(arena, 8, name="b"))
    body.call("read", a)
    body.call("fill", part)
    body.call("read", a)
    assert pairs(body.program()) == {(part.name, "b", True)}


def test_a_tensor_of_another_size_by_the_same_name_is_not_all_of_it() -> None:
    body = Two()
    shorter = body.reshape(body.a, 4)
    body.overwrite()
    body.call("fill", shorter)
    body.call("read", body.a)
    assert body.lost == LOST


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


def test_a_view_and_what_it_views_are_one_memory() -> None:
    body = Two()
    part = body.view(body.a, 4)
    body.call("update", part)
    body.call("read", body.a)
    body.call("update", body.a)
    body.call("read", part)
    assert not body.lost


def test_what_a_view_reads_of_a_whole_that_is_overwritten() -> None:
    body = Two()
    part = body.view(body.a, 4)
    body.overwrite()
    body.call("read", part)
    assert body.lost == {(part.name, "b", True)}


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
