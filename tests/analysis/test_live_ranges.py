"""Live ranges: by hand, and beside an oracle that walks every path of random programs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random

import pytest

from symalloc.analysis.effects import Intervals
from symalloc.analysis.interprocedural import analyse
from symalloc.planner.plan_functions import plan_program
from symalloc.program.ir import AllocFresh, Function, Kernel, Program, Var
from symalloc.program.types import TupleType
from symalloc.prover.prover import Prover
from tests.planner.random_programs import MIX, MIX_KERNEL, Maker
from tests.program.build import KERNELS, NOTHING, Body, buffer, param, program_of
from tests.program.live_oracle import live_together
from tests.scale import tries

SIZE = 4


def ranges(program: Program, name: str = "main") -> dict[Var, Intervals]:
    analysis = analyse(program)[name]
    made = [i.var for _, i in analysis.cfg.instructions if isinstance(i, AllocFresh)]
    roots = {var: analysis.points_to.allocated(var).number for var in made}
    found = analysis.live_ranges(roots.values())
    return {var: found.of[root].live if root in found.of else () for var, root in roots.items()}


def overlapping(program: Program) -> set[frozenset[Var]]:
    found = ranges(program)
    positions = {var: {m for begin, end in live for m in range(begin, end)} for var, live in found.items()}
    return {frozenset(pair) for pair in combinations(positions, 2) if positions[pair[0]] & positions[pair[1]]}


def callees() -> Iterator[Function]:
    """What a callee may do to its arguments."""
    for name, steps, result in (
        ("reads", "c = fresh 4; add a b c", "c"),
        ("returns", "", "a"),
        ("chooses", "", "c"),
        ("pairs", "c = tuple a b", "c"),
        ("updates", "update a; read b", "b"),
    ):
        body = Body(param("a", SIZE), param("b", SIZE), name=name)
        body.follow(steps, **({"c": body.sides("", "", "a", "b")} if name == "chooses" else {}))
        yield body.finish(body.named[result])


CALLEES = tuple(callees())


class Writer(Maker):
    """Writes a random program; `plain` ones hold what lowered models hold, and no partial writes."""

    plain = False

    def cast(self) -> None:
        self.compute()

    def packed(self) -> None:
        self.compute() if self.plain else super().packed()

    def update(self) -> None:
        kind = "read" if self.plain else self.random.choice(("read", "update", "scatter", "late", "part"))
        var, extent = self.pick()
        if kind == "late":
            self.visible.append((self.body.fresh(SIZE), extent))
        elif kind == "part":
            part = self.body.view(var, 2, offset=self.random.randint(0, 2))
            self.body.call(self.random.choice(("read", "fill")), part)
        else:
            self.body.call(kind, var)

    def call(self) -> None:
        callee = self.random.choice(CALLEES[: 4 if self.plain else 5])
        (a, extent), (b, _) = self.pick(), self.pick()
        result = self.body.function(callee.name, a, b, kind=callee.result_type)
        if isinstance(result.type, TupleType):
            result = self.body.take(result, self.random.randrange(2))
        self.visible.append((result, extent))


def program(seed: int, *, plain: bool) -> Program:
    random, x = Random(seed), param("x", SIZE)
    writer = Writer(random, Body(x), {x: str(SIZE)})
    writer.extents, writer.plain = [str(SIZE)], plain
    writer.grow(random.randint(3, 12))
    result = random.choice((writer.pick()[0], NOTHING))
    return program_of(writer.body.finish(result), *CALLEES, kernels={**KERNELS, MIX: MIX_KERNEL})


def test_memory_that_is_filled_anew_is_free_in_between() -> None:
    body = Body()
    steps = "; ".join(f"b = fresh 4; fill b; {kernel} a" for kernel in ("read", "fill", "read"))
    a = body.follow(f"a = fresh 4; fill a; {steps}")["a"]
    assert ranges(body.program())[a] == ((0, 3), (4, 7))


@pytest.mark.parametrize("plain", [False, True])
def test_what_is_live_together_on_some_path_overlaps(plain: bool) -> None:
    """And nothing else, in programs as lowering makes them."""
    for seed in range(tries(75, 1500)):
        given = program(seed, plain=plain)
        together, found = live_together(given), overlapping(given)
        assert together == found if plain else together <= found, seed


def test_what_is_written_in_part_is_free_before_whichever_way_an_if_goes() -> None:
    reads = [buffer(name, "k", writes=False) for name in "ab"]
    evens = Kernel(name="evens", parameters=(*reads, buffer("out", "k", reads=False)))
    body = Body(param("x", "n"))
    y = body.sides("a = fresh n; evens x x a", "b = fresh n; evens x x b", "a", "b")
    later = (("y", "y", "c"), ("c", "c", "d"), ("d", "d", "e"), ("e", "y", "last"))
    made = body.follow("; ".join(f"{c} = fresh n; evens {a} {b} {c}" for a, b, c in later), y=y)
    whole = program_of(body.finish(made["last"]), kernels={"evens": evens})
    arenas = plan_program(whole, Prover())["main"].arenas
    assert sum(arena.size.evaluate({"n": 16}) for arena in arenas) == 3 * 64
