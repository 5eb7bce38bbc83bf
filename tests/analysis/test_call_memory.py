from __future__ import annotations

from dataclasses import replace

from symalloc.analysis.call_memory import CalleeMemory, CallMemory, HeldMemory, call_memory
from symalloc.analysis.interprocedural import analyse
from symalloc.program.types import TupleType
from symalloc.size.expr import Expr, constant, symbol
from tests.program.build import Body, param, program_of

N = symbol("n")


def held(size: Expr | int | None, begin: int, end: int) -> HeldMemory:
    return HeldMemory(size=constant(size) if isinstance(size, int) else size, begin=begin, end=end)


def test_only_what_is_held_together_adds_up() -> None:
    memory = CallMemory(
        storages=(held(64 * N, 0, 2), held(128 * N, 3, 5)),
        fresh=(held(64, 2, 3),),
        results=(held(640, 5, 9),),
    )
    assert memory.peak({"n": 2}, results=False) == 256 + 64
    assert memory.peak({"n": 2}, results=True) == 256 + 640


def test_what_a_point_takes_and_gives_back_is_there_at_once() -> None:
    assert CallMemory(fresh=(held(64, 0, 3), held(64, 3, 4))).peak({}, results=False) == 128


def test_sizes_are_rounded_up() -> None:
    assert CallMemory(fresh=(held(4 * N, 0, 1), held(4, 0, 1))).peak({"n": 17}, results=False) == 128 + 64


def test_a_callee_holds_its_own_while_it_is_called() -> None:
    callee = CallMemory(storages=(held(64 * symbol("m"), 0, 1),), results=(held(64 * symbol("m"), 1, 2),))
    called = CalleeMemory(point=2, memory=callee, values={"m": 2 * N})
    memory = CallMemory(fresh=(held(64, 0, 2), held(128, 3, 4)), callees=(called,))
    assert memory.peak({"n": 3}, results=True) == 64 + 64 * 6 + 64 * 6, (
        "what it returns is there with its own"
    )


def test_what_a_callee_returns_is_not_there_beside_all_that_it_needs_before() -> None:
    callee = CallMemory(storages=(held(512, 0, 1),), results=(held(64, 2, 3),))
    called = CalleeMemory(point=2, memory=callee, values={})
    memory = CallMemory(fresh=(replace(held(64, 2, 4), called=True),), callees=(called,))
    assert memory.peak({}, results=False) == 512


def test_the_worst_path_counts() -> None:
    paths = tuple(CallMemory(fresh=(held(size, 0, 1),)) for size in (64, 256, 128))
    assert CallMemory(fresh=(held(4096, 0, 1),), paths=paths).peak({}, results=False) == 256


def test_a_size_that_is_not_known_makes_the_peak_unknown() -> None:
    memory = CallMemory(fresh=(held(64, 0, 1),), results=(held(None, 1, 2),))
    assert memory.peak({}, results=True) is None
    assert memory.peak({}, results=False) == 64
    assert CallMemory(fresh=(held(N, 0, 1),)).peak({}, results=False) is None


def test_what_calls_within_themselves_hold_is_not_known() -> None:
    """Each call under way keeps its tensors: those of one alone are less than what is held."""
    within, around = Body(param("x", "n"), name="step"), Body(param("y", "m"))
    for body in (within, around):
        body.call("fill", body.tensor(body.storage(64), 64))
        body.function("step", body.params[0], kind=TupleType(fields=()))
    program = program_of(within.finish(private=True), around.finish())
    analyses = analyse(program)
    for name in analyses:
        memory = call_memory(program, analyses, name)
        assert memory.recursive
        assert memory.peak({"n": 1, "m": 1}, results=True) is None
