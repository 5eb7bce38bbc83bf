"""Arenas under the largest buffer that a device has, and the tensors that no arena can hold within it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from symalloc.planner.buffer_limit import edges
from symalloc.planner.memory_plan import Arena, FallbackKind, Plan
from symalloc.planner.plan_functions import plan_program
from symalloc.planner.planner_options import Flavour, PlanOptions
from symalloc.prover.prover import Prover
from symalloc.size.parse import parse_expr
from tests.planner.random_programs import random_program
from tests.planner.test_plan_functions import chain, only
from tests.program.build import program_of
from tests.scale import tries

PROVER, LIMIT = Prover(), 4096
EXTENTS = (0, 1, 2, 3, 5, 8, 12, 15, 16, 17, 21, 31, 32, 33, 40, 63, 64, 65, 100, 512, 4096)


def _planned(*extents: str, most: int | str = LIMIT, upper: int | None = None, **options: str) -> Plan:
    function = replace(chain("main", *extents), declared_upper={} if upper is None else {"n": upper})
    chosen = PlanOptions(max_buffer=most, **options)  # type: ignore[arg-type]
    return only(plan_program(program_of(function), Prover(), options=chosen))


@pytest.mark.parametrize("flavour", ["arena", "storages"])
@pytest.mark.parametrize("seed", range(tries(12, 240)))
def test_an_arena_takes_the_limit_or_its_largest_tensor(seed: int, flavour: Flavour) -> None:
    options, random = PlanOptions(max_buffer=LIMIT, flavour=flavour), Random(seed)
    for plan in plan_program(random_program(seed), PROVER, options=options).values():
        named = {one.size for one in plan.too_large}
        for arena in plan.arenas:
            sizes = {p.buffer.size for p in arena.placements}
            for _ in range(60):
                binding = {name: random.choice(EXTENTS) for name in sorted(arena.size.symbols)}
                taken = [size.evaluate(binding) for size in sizes]
                assert arena.size.evaluate(binding) <= max(LIMIT, *taken), (arena.size, binding)
            for size in sizes - named:
                assert all(size.evaluate(dict.fromkeys(size.symbols, n)) <= LIMIT for n in EXTENTS)


def test_an_arena_is_split_and_says_why() -> None:
    plan = _planned("64*n", "64*n", "64*n")
    assert [str(arena.size) for arena in plan.arenas] == ["64*n", "64*n"]
    assert "one buffer" in (plan.arenas[1].further.reason if plan.arenas[1].further else "")
    assert [(t.name, str(t.size), t.alike, dict(t.at)) for t in plan.too_large] == [
        ("t0", "64*n", 3, {"n": 65})
    ]


def test_shapes_within_the_declared_bounds_count() -> None:
    assert [str(arena.size) for arena in _planned("64*n", "64*n", upper=32).arenas] == ["128*n"]
    assert len(_planned("64*n", "64*n", upper=33).arenas) == 2
    assert not _planned("64*n", "64*n", upper=64).too_large


def test_what_is_too_large_lies_under_nothing() -> None:
    plan = _planned("8192", "1024", "2048", "1024")
    assert sorted(arena.size.evaluate({}) for arena in plan.arenas) == [1024, 8192]


def test_a_constant_that_is_too_large_is_named() -> None:
    plan = _planned("64*n", upper=65, bounds="reserve")
    assert [(str(t.size), t.limit, dict(t.at)) for t in plan.too_large] == [("4160", 4096, {})]
    assert not _planned("64*n", upper=65, bounds="reserve", most="4160").too_large


def test_without_a_proof_whole_storages_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    def unproved(arenas: Sequence[Arena], *_: object) -> Iterator[dict[str, int]]:
        return ({} for arena in arenas if not arena.placements[0].buffer.grounded)

    monkeypatch.setattr("symalloc.planner.plan_functions.beyond", unproved)
    plan = _planned("64*n", "64*n + 64", "64*n")
    kinds: list[FallbackKind] = [fallback.kind for fallback in plan.fallbacks]
    assert kinds == ["storages"] and all(str(p.offset) == "0" for a in plan.arenas for p in a.placements)


def test_edges_are_the_largest_shapes_within_the_limit() -> None:
    sizes = [parse_expr("64*n*m"), parse_expr("64*n")]
    assert list(edges(sizes, {"m": 2}, LIMIT)) == [{"m": 2, "n": 32}] * 2
