"""The cost of an order against what calls in other orders hold, on one thread."""

from __future__ import annotations

from random import Random

import pytest
import tvm

from symalloc.analysis.dependencies import HappensBefore, dependency_graph
from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.timeline import Timeline
from symalloc.planner.orders import HeldInOrder
from symalloc.planner.plan_functions import plan_program
from symalloc.planner.planned_program import planned_program
from symalloc.planner.planner_options import PlanOptions
from symalloc.prover.prover import Prover
from symalloc.relax.extract import extract
from symalloc.relax.files.load import lower_or_refuse, plan_or_refuse
from tests.planner.random_programs import random_program
from tests.planner.test_orders import BINDINGS, permuted, random_order
from tests.relax.reordering import reordered
from tests.scale import tries

# one device is done with its arena before the other begins, in the order of the text
TWO_DEVICES = """
@I.ir_module
class Module:
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @R.function
    def main(x: R.Tensor(("n", 64), "float32", "llvm:0"), y: R.Tensor(("n", 64), "float32", "llvm:1")):
        a = R.exp(x)
        b = R.tanh(a)
        c = R.sum(b, axis=1)
        d = R.exp(y)
        e = R.tanh(d)
        f = R.sum(e, axis=1)
        return (c, f)
"""


def test_arenas_of_two_devices_are_held_at_once_in_some_order() -> None:
    lowered, n = lower_or_refuse(tvm.script.from_source(TWO_DEVICES), "llvm", "default"), 64
    plain, other, auto = (
        plan_or_refuse(lowered, "llvm", PlanOptions(order=order)) for order in ("total", "dag", "auto")
    )
    plan = other.plans["main"]
    assert plan.order_cost is not None and plan.order_cost > 0.9
    assert auto.plans["main"].order == "total"
    program = extract(other.module, name="dag", handles=True)
    graph = dependency_graph(analyse(program)["main"])
    assert [node.device for node in graph.nodes][-6:] == [0, 0, 0, 1, 1, 1]
    order = [*range(len(graph.nodes) - 6), *(len(graph.nodes) - k for k in (6, 3, 5, 2, 4, 1))]
    peaks = [
        peak_of(module, n)
        for module in (plain.module, reordered(other.module, program, "main", graph, order))
    ]
    assert peaks[1] > 1.9 * peaks[0]
    assert peaks[1] <= peaks[0] * (1 + plan.order_cost)


def peak_of(module: tvm.IRModule, n: int) -> int:
    """The most bytes that one call holds, on all devices."""
    return Timeline.of(extract(module, name="planned"), "main").peak({"n": n}) or 0


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
