"""A certificate's order, replayed on one thread: plans for the order of the text compute wrong numbers there,
plans for any order and plans with their fences do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from random import Random
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from symalloc.analysis.dependencies import (
    Collision,
    DependencyGraph,
    EdgeKind,
    HappensBefore,
    dependency_graph,
    placed_together,
)
from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.timeline import Timeline
from symalloc.planner.check.validate import fenced_graph
from symalloc.planner.interference import HeldInOrder
from symalloc.planner.memory_plan import GuardKind, PlanOptions
from symalloc.planner.plan_functions import plan_program
from symalloc.planner.planned_program import planned_program
from symalloc.program.ir import Program
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.relax.extract import extract
from symalloc.relax.files.load import lower_or_refuse, plan_or_refuse
from symalloc.relax.run.machine import planned_by_tvm
from symalloc.size.expr import ZERO
from tests.planner.random_programs import random_program
from tests.planner.test_orders import BINDINGS, permuted, random_order
from tests.relax.built import EFFECTS, graph, rows
from tests.relax.reordering import error, reordered
from tests.relax.shrink.compared import outputs
from tests.scale import tries


def network(*chains: Sequence[str]) -> tvm.IRModule:
    """Chains of operators on one input, and the product of what they make."""

    def write(emit: Any, x: relax.Var) -> relax.Expr:
        made = [reduce(lambda one, name: emit(getattr(relax.op, name)(one)), chain, x) for chain in chains]
        product = reduce(lambda one, other: emit(relax.op.multiply(one, other)), made)
        return relax.op.sum(emit(relax.op.negative(product)), axis=1)

    return graph(write, x=("n", 8))


CHAIN = network(("exp", "tanh", "sigmoid", "sin"))
BRANCHES = network(("exp", "tanh", "sigmoid"), ("sin", "cos", "exp"))
LOWERED = lower_or_refuse(BRANCHES, "llvm", "default")
AT = {"n": 5}
X = rows(5, 8)


def program_of(module: tvm.IRModule) -> Program:
    return extract(module, name="module", handles=True)


def graph_of(module: tvm.IRModule) -> DependencyGraph:
    return dependency_graph(analyse(program_of(module))["main"])


def certificate(program: Program) -> tuple[HappensBefore, list[Collision]]:
    relation = HappensBefore(graph=dependency_graph(analyse(program)["main"]), order="dag")
    regions, found = relation.graph.points_to.regions, list[Collision]()
    for pair in placed_together(relation.graph):
        ranges = [(regions[n].offset or ZERO, regions[n].nbytes or ZERO) for n in pair]
        (begin, end), (start, stop) = ((at.evaluate(AT), (at + nbytes).evaluate(AT)) for at, nbytes in ranges)
        lost = next(iter(relation.collisions(*pair)), None) if begin < stop and start < end else None
        found += [] if lost is None else [lost]
    return relation, found


def run(module: tvm.IRModule) -> np.ndarray:
    return np.frombuffer(outputs(module, "main", [X])[0], "float32")


@pytest.mark.parametrize("planner", ["tvm", "symalloc"])
def test_the_order_that_a_certificate_shows_computes_wrong_numbers(planner: str) -> None:
    theirs = planner == "tvm"
    module = planned_by_tvm(LOWERED) if theirs else plan_or_refuse(LOWERED, "llvm", PlanOptions()).module
    program, right = program_of(module), run(LOWERED)
    relation, lost = certificate(program)
    assert lost, "the two branches take turns"
    assert (run(module) == right).all()
    orders = [relation.showing(one) for one in lost[:3]]
    wrong = [run(reordered(module, program, "main", relation.graph, order)) for order in orders]
    assert max(error({"out": right}, {"out": one}) for one in wrong) > 0.01
    assert fences_suffice(module, program, right)


def test_a_plan_for_any_order_computes_the_same_in_random_orders() -> None:
    planned = plan_or_refuse(LOWERED, "llvm", PlanOptions(order="dag"))
    program = program_of(planned.module)
    assert not certificate(program)[1]
    assert not fences_suffice(planned.module, program, run(LOWERED))


def fences_suffice(module: tvm.IRModule, program: Program, right: np.ndarray) -> int:
    """The number of fences with which a module computes what is right in random orders."""
    graph = fenced_graph(analyse(program)["main"], Domain())
    for seed in range(3):
        order = random_order(graph, Random(seed))
        assert (run(reordered(module, program, "main", graph, order)) == right).all()
    return sum(edge.kind is EdgeKind.FENCE for edge in graph.edges)


def test_auto_takes_any_order_where_it_is_free() -> None:
    for module, order in ((CHAIN, "dag"), (BRANCHES, "total")):
        lowered = lower_or_refuse(module, "llvm", "default")
        plan = plan_or_refuse(lowered, "llvm", PlanOptions(order="auto")).plans["main"]
        assert plan.order == order
        assert plan.order_cost is not None and (plan.order_cost <= 0) == (order == "dag")


def test_every_order_of_what_changes_state_computes_the_same() -> None:
    lowered = lower_or_refuse(EFFECTS.Cache, "llvm", "default")
    planned = plan_or_refuse(lowered, "llvm", PlanOptions(order="dag")).module
    program = program_of(planned)
    graph = dependency_graph(analyse(program)["main"])
    given = rows(1, 8), np.ones((1, 8), "float32")
    right = outputs(lowered, "main", given)
    for order in {random_order(graph, Random(seed)) for seed in range(12)}:
        assert outputs(reordered(planned, program, "main", graph, order), "main", given) == right, order


@pytest.mark.parametrize("name", ["Prints", "GivenCache", "Drawn", "Cache"])
def test_what_has_effects_keeps_its_order(name: str) -> None:
    words = ("print", "check", "log", "if", "put", "cache", "clear", "tir_sin", "random")
    module = lower_or_refuse(getattr(EFFECTS, name), "llvm", "default")
    graph = graph_of(module)
    ahead = HappensBefore(graph=graph, order="dag").ahead
    some = [n.number for n in graph.nodes if any(word in n.operator for word in words)]
    late = [n for n in some if graph.nodes[n].operator != "tir_sin"]  # what follows a reader may write
    assert len(late) > 1
    assert all(ahead[b] >> a & 1 for b in late for a in some if a < b)


def test_a_constant_that_is_written_is_read_where_the_text_says() -> None:
    graph = graph_of(lower_or_refuse(EFFECTS.Constant, "llvm", "default"))
    assert [n.operator for n in graph.nodes[:3]] == ["add", "bump", "add"]
    assert {(0, 1), (1, 2)} <= {(e.source, e.target) for e in graph.edges}


@pytest.mark.parametrize("guards", ["assert", "native"])
def test_nothing_runs_ahead_of_the_checks_of_a_plan(guards: GuardKind) -> None:
    graph = graph_of(plan_or_refuse(LOWERED, "llvm", PlanOptions(guards=guards)).module)
    ahead = HappensBefore(graph=graph, order="dag").ahead
    assert graph.nodes[0].operator == "main_check"
    assert all(known & 1 for known in ahead[1:])


# one device is done with its arena before the other begins, in the order of the text
TWO_DEVICES = """
@I.ir_module
class Module:
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @R.function
    def main(x: R.Tensor(("n", 64), "float32", "llvm:0"), y: R.Tensor(("n", 64), "float32", "llvm:1")):
        return (R.sum(R.tanh(R.exp(x)), axis=1), R.sum(R.tanh(R.exp(y)), axis=1))
"""


def test_arenas_of_two_devices_are_held_at_once_in_some_order() -> None:
    lowered = lower_or_refuse(tvm.script.from_source(TWO_DEVICES), "llvm", "default")
    plain, other, auto = (
        plan_or_refuse(lowered, "llvm", PlanOptions(order=order)) for order in ("total", "dag", "auto")
    )
    plan = other.plans["main"]
    assert plan.order_cost is not None and plan.order_cost > 0.9
    assert auto.plans["main"].order == "total"
    program = program_of(other.module)
    graph = dependency_graph(analyse(program)["main"])
    assert [node.device for node in graph.nodes][-6:] == [0, 0, 0, 1, 1, 1]
    order = [*range(len(graph.nodes) - 6), *(len(graph.nodes) - k for k in (6, 3, 5, 2, 4, 1))]
    again = reordered(other.module, program, "main", graph, order)
    peaks = [Timeline.of(program_of(m), "main").peak({"n": 64}) or 0 for m in (plain.module, again)]
    assert peaks[1] > 1.9 * peaks[0]
    assert peaks[1] <= peaks[0] * (1 + plan.order_cost)


@pytest.mark.parametrize("seed", range(tries(10, 400)))
def test_no_order_holds_more_than_is_said(seed: int) -> None:
    program = random_program(seed)
    plans = plan_program(program, Prover(), options=PlanOptions(order="dag"))
    written = planned_program(program, plans).program
    graph = dependency_graph(analyse(written)["main"])
    held = HeldInOrder(Timeline.of(written, "main"), HappensBefore(graph=graph, order="dag"))
    for number in range(tries(6, 20)):
        other = Timeline.of(permuted(written, graph, random_order(graph, Random(number))), "main")
        for at in BINDINGS:
            most, found = held.peak(at), other.peak(at)
            assert most is None or found is None or found <= most
