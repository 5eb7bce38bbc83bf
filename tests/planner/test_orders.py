"""Plans for any order: random programs, run in random orders; floors against all antichains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random
from typing import Any

import pytest

from symalloc.analysis.dependencies import DependencyGraph, HappensBefore, dependency_graph
from symalloc.analysis.interprocedural import analyse
from symalloc.planner.check.validate import TensorPlace, fences
from symalloc.planner.interference import BufferOrder, reordered
from symalloc.planner.memory_plan import Buffer, Plan, PlanOptions
from symalloc.planner.plan_functions import plan_program
from symalloc.program.ir import Block, Program
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from tests.planner.random_programs import Machine, Tensor, logs, random_program
from tests.relax.reordering import instructions_in
from tests.scale import tries

PROVER = Prover()
BINDINGS = [{"n": 5, "m": 3, "s": 7}, {"n": 64, "m": 17, "s": 100}, {"n": 1, "m": 9, "s": -1000}]


def random_order(graph: DependencyGraph, random: Random) -> tuple[int, ...]:
    done: dict[int, None] = {}
    while len(done) < len(graph.nodes):
        ready = [n for n, waits in enumerate(graph.predecessors) if n not in done and waits <= done.keys()]
        done[random.choice(ready)] = None
    return tuple(done)


def permuted(program: Program, graph: DependencyGraph, order: Sequence[int]) -> Program:
    """`program` with the dispatches of its main function in another order, and what they need before them."""
    main = program.functions["main"]
    body = Block(instructions=tuple(instructions_in(main, graph, order)), result=main.body.result)
    return replace(program, functions={**program.functions, "main": replace(main, body=body)})


class Steady(Random):
    """The same way at every branch, whatever was asked before."""

    def choice(self, seq: Any) -> Any:
        return seq[0 if self.way else -1]

    def random(self) -> float:
        return 0.2 if self.way else 0.8


@dataclass(slots=True)
class Timeless(Machine):
    """A machine whose kernels write what depends on what they read, and not on when they run."""

    def write(self, tensor: Tensor, seen: tuple[int, ...]) -> Tensor:
        for index, block in enumerate(tensor.blocks):
            self.memory[block] = hash((index, seen))
        return tensor


def results(program: Program, plans: dict[str, Plan], binding: dict[str, int], way: bool) -> int:
    """What a run returns, as one number."""
    choices = Steady(0)
    choices.way = way
    return Timeless(program=program, plans=plans, choices=choices, binding=binding).run()[-1]


@pytest.mark.parametrize("seed", range(tries(8, 1000)))
def test_a_plan_for_any_order_computes_the_same_in_every_order(seed: int) -> None:
    program = random_program(seed)
    analyses = analyse(program)
    graph = dependency_graph(analyses["main"])
    plans = plan_program(program, PROVER, options=PlanOptions(order="dag"), analyses=analyses)
    random = Random(seed)
    for number in range(tries(8, 100)):
        other = permuted(program, graph, random_order(graph, random))
        binding, way = BINDINGS[number % len(BINDINGS)], bool(number % 2)
        assert logs(other, plans, binding, number).log == logs(other, {}, binding, number).log
        assert results(other, plans, binding, way) == results(program, {}, binding, way)


@pytest.mark.parametrize("seed", range(tries(8, 1000)))
def test_fences_make_a_plan_for_the_order_of_the_text_right_in_every_order(seed: int) -> None:
    program = random_program(seed)
    analyses = analyse(program)
    analysis = analyses["main"]
    graph = dependency_graph(analysis)
    plans = {"main": plan_program(program, PROVER, analyses=analyses)["main"]}
    placed = [p.buffer for arena in plans["main"].arenas for p in arena.placements if not arena.defined_by]
    if any(arena.defined_by for arena in plans["main"].arenas):
        pytest.skip("an arena waits for its size")
    numbers = [analysis.allocations[b.var].number for b in placed if b.var is not None]
    fenced = graph.with_edges(fences(graph, dict.fromkeys(numbers, TensorPlace(0)), Domain()))
    random = Random(seed)
    for number in range(tries(4, 30)):
        other = permuted(program, graph, random_order(fenced, random))
        binding = BINDINGS[number % len(BINDINGS)]
        assert logs(other, plans, binding, number).log == logs(other, {}, binding, number).log


@pytest.mark.parametrize("seed", range(tries(10, 1000)))
def test_the_floor_is_the_heaviest_antichain(seed: int) -> None:
    program = random_program(seed)
    analyses = analyse(program)
    plan = plan_program(program, PROVER, options=PlanOptions(order="total"), analyses=analyses)["main"]
    relation = HappensBefore(graph=dependency_graph(analyses["main"]), order="dag")
    buffers = [p.buffer for arena in plan.arenas for p in arena.placements][:11]
    numbers = [analyses["main"].allocations[b.var].number for b in buffers if b.var is not None]
    order = BufferOrder(buffers=buffers, numbers=numbers, relation=relation)
    sizes = [Random(seed).randint(0, 9) * (1 + i % 3) for i in range(len(buffers))]
    best = max(
        sum(sizes[i] for i in some)
        for count in range(len(buffers) + 1)
        for some in combinations(range(len(buffers)), count)
        if not any(order.over[i, j] or order.over[j, i] for i, j in combinations(some, 2))
    )
    assert sum(sizes[i] for i in order.heaviest(sizes)) == best
    lives = reordered(buffers, numbers, relation, {})
    for i, j in combinations(range(len(buffers)), 2):
        apart = relation.apart(numbers[i], numbers[j]) and not _meet(buffers[i], buffers[j])
        assert apart == (not _meet(lives[i], lives[j]))


def _meet(one: Buffer, other: Buffer) -> bool:
    return any(max(a, c) < min(b, d) for a, b in one.live for c, d in other.live)
