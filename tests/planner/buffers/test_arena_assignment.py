"""Assignments of tensors to arenas, judged by what a call takes at each moment."""

from __future__ import annotations

from symalloc.planner.memory_plan import Buffer
from symalloc.program.ir import AllocFresh, Instruction
from symalloc.size.expr import constant
from tests.planner.buffers.test_candidates import N, X, alloc, branch, kernel, split

WIDE = N * constant(16)  # a multiple of 64 bytes


def chain(*names: str) -> tuple[list[AllocFresh], list[Instruction]]:
    """Tensors of one size, each made from the one before."""
    made = [alloc(name, WIDE) for name in names]
    body: list[Instruction] = []
    for before, one in zip([X, *(m.var for m in made)], made, strict=False):
        body += [one, kernel(before, one.var)]
    return made, body


def arenas(found: dict[str, Buffer]) -> dict[int, set[str]]:
    groups: dict[int, set[str]] = {}
    for name, buffer in found.items():
        groups.setdefault(buffer.arena, set()).add(name)
    return groups


def test_a_result_lends_its_memory_until_it_is_made() -> None:
    made, body = chain("a", "b", "c", "r")
    found, _ = split(*body, result=made[-1].var)
    groups = arenas(found)
    assert len(groups) == 2, "two of a chain are live at once, the result one of them"
    lent = next(members for members in groups.values() if "r" in members)
    assert lent in ({"r", "b"}, {"r", "a"}) and found["r"].returned


def test_what_is_live_with_the_result_lies_elsewhere() -> None:
    made, body = chain("a", "r")
    found, left = split(*body, result=made[-1].var)
    assert set(found) == {"a"} and left["r"].reason == "it is returned"


def test_no_branch_takes_the_memory_of_the_other() -> None:
    small, large, other = alloc("small", WIDE), alloc("large", 64 * WIDE), alloc("other", 64 * WIDE)
    then = (large, kernel(X, large.var), other, kernel(large.var, other.var))
    found, _ = split(branch(then, (small, kernel(X, small.var)), (X, X)))
    assert found["small"].arena not in (found["large"].arena, found["other"].arena)
