"""Assignments of tensors to arenas, judged by what a call takes at each moment."""

from __future__ import annotations

import gc
from dataclasses import replace

from symalloc.analysis.interprocedural import analyse
from symalloc.planner.buffers.arena_attempts import ArenaAttempts
from symalloc.planner.buffers.call_columns import CallColumns
from symalloc.planner.buffers.candidates import find_candidates
from symalloc.planner.buffers.sizing import Sizes, known_symbols
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.plan_functions import plan_program
from symalloc.program.ir import (
    AllocFresh,
    Block,
    CallFunction,
    CallPacked,
    Instruction,
    Ownership,
    Var,
)
from symalloc.program.types import TensorType
from symalloc.prover.prover import Prover
from symalloc.size.expr import constant
from tests.planner.buffers.test_candidates import FLOAT, VOID, N, X, alloc, branch, function, kernel, split
from tests.program.build import program_of

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


def test_a_plan_leaves_nothing_to_the_garbage_collector() -> None:
    made, body = chain("a", "b", "c", "r")
    gc.collect()
    gc.disable()
    try:
        split(*body, result=made[-1].var)
        left = [one for one in gc.get_objects() if isinstance(one, ArenaAttempts | CallColumns)]
    finally:
        gc.enable()
    assert not left


def test_what_is_live_with_the_result_lies_elsewhere() -> None:
    made, body = chain("a", "r")
    found, left = split(*body, result=made[-1].var)
    assert set(found) == {"a"} and left["r"].reason == "it is returned"


def test_what_a_packed_function_may_keep_counts_to_its_last_use() -> None:
    """Were `seen` held to the end, an arena for both `c` and `d` might be there beside it."""
    a, seen, c, d, e, r = (alloc(name, WIDE) for name in ("a", "seen", "c", "d", "e", "r"))
    watch = CallPacked(
        var=Var("w", VOID),
        name="watch",
        arguments=(seen.var,),
        ownership=Ownership.FRESH,
        pure=False,
        may_capture=True,
    )
    early = (a, kernel(X, a.var), seen, kernel(a.var, seen.var), watch, c, kernel(seen.var, c.var))
    late = (d, kernel(c.var, a.var, d.var), e, kernel(d.var, e.var), r, kernel(d.var, e.var, r.var))
    found, left = split(*early, *late, result=r.var)
    assert "seen" in left
    assert found["c"].arena != found["d"].arena


def test_no_branch_takes_the_memory_of_the_other() -> None:
    small, large, other = alloc("small", WIDE), alloc("large", 64 * WIDE), alloc("other", 64 * WIDE)
    then = (large, kernel(X, large.var), other, kernel(large.var, other.var))
    found, _ = split(branch(then, (small, kernel(X, small.var)), (X, X)))
    assert found["small"].arena not in (found["large"].arena, found["other"].arena)


def test_what_no_path_needs_still_counts_in_an_arena() -> None:
    """Two Ifs on one condition: the large tensor on the wrong side of the second is never live."""
    wide, small, large = alloc("wide", WIDE), alloc("small", WIDE), alloc("large", 64 * WIDE)
    test = Var("c", X.type)
    outer = branch((), (), (X, X))
    inner = replace(branch((large, kernel(X, large.var)), (), (X, X)), var=Var("z", X.type), test=test)
    outer = replace(outer, test=test, otherwise=Block(instructions=(inner,), result=X))
    body = (wide, kernel(X, wide.var), outer, small, kernel(wide.var, small.var))
    found, _ = split(*body)
    assert found["large"].arena not in (found["wide"].arena, found["small"].arena)


def test_a_caller_brings_no_arena_that_would_be_held_beside_the_results_of_its_callee() -> None:
    inner, small, result, given = (
        alloc(name, size * WIDE) for name, size in (("inner", 64), ("small", 1), ("r", 32), ("given", 1))
    )
    told = Var("told", TensorType(shape=(32 * WIDE,), dtype=FLOAT))
    late = (inner, kernel(X, inner.var), small, kernel(inner.var, small.var), result)
    callee = function(*late, kernel(small.var, result.var), result=result.var, name="made")
    body = (given, kernel(X, given.var), CallFunction(var=told, name="made", arguments=(X,)))
    program = program_of(function(*body, kernel(given.var, told)), callee)
    plans = plan_program(program, Prover())
    names = {p.buffer.name for arena in plans["made"].entry_arenas for p in arena.placements}
    assert "inner" not in names and plans["made"].placements


def test_an_if_that_begins_another_is_decided_first() -> None:
    """`late` is dead behind the inner If, in front of which the arena of `v` and `w` would be reserved."""
    early, late, v, w = (
        alloc(name, size * WIDE) for name, size in (("e", 1), ("late", 64), ("v", 4), ("w", 4))
    )
    uses = [kernel(each.var, X) for each in (early, late)]
    inner = replace(branch((uses[1],), (v, kernel(X, v.var)), (X, X)), var=Var("z", X.type))
    behind = (inner, w, kernel(X, w.var))
    outer = replace(branch((uses[0],), (), (X, X)), otherwise=Block(instructions=behind, result=X))
    main = function(early, kernel(X, early.var), late, kernel(early.var, late.var), outer)
    program = program_of(main)
    analyses = analyse(program)
    sizes = Sizes(known_symbols(analyses["main"].cfg), Prover())
    assignment = find_candidates(program, analyses, "main", sizes, {}, {}).assignment
    assert assignment is not None
    for order in (1, -1):
        paths = [
            replace(path, tested=dict(sorted(path.tested.items(), key=lambda one: order * one[1])))
            for path in assignment.paths
        ]
        ((_, columns),) = replace(assignment, paths=paths).places
        timeline = assignment.timeline(columns)
        assert timeline.excess([[0], [1], [2, 3]]) > 0 and not timeline.excess([[0], [1], [2], [3]])


def test_both_sides_of_an_if_share_what_lies_beside_the_result() -> None:
    """Each side needs three tensors at once, one of them in the result: the others share an arena."""

    def side(mark: str) -> tuple[Var, tuple[Instruction, ...]]:
        first, second, third = (alloc(f"{mark}{number}", WIDE) for number in range(3))
        uses = (kernel(X, first.var), kernel(first.var, second.var), kernel(first.var, second.var, third.var))
        body = (first, uses[0], second, uses[1], third, uses[2])
        return third.var, body

    (left, then), (right, otherwise) = side("a"), side("b")
    one = replace(branch(then, otherwise, (left, right)), var=Var("y", left.type))
    result = alloc("r", WIDE)
    found, _ = split(one, result, kernel(one.var, result.var), result=result.var)
    assert len(arenas(found)) == 2
