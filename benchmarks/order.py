"""Plans under another order: what TVM's plans share without an order, and what a plan for any order takes.

    python -m benchmarks.order                # five networks, weights as parameters and as constants
    python -m benchmarks.order --random 100 --first 200  # random programs: certificates, runs in any order

In the table `pairs` are those of tensors of TVM's plan (StaticPlanBlockMemory) that share bytes, `unordered`
those of them that some order loses, with `error` that of a run on one thread in such an order, of TVM's plan
where it has such a pair, else of ours for the order of the text.  `fences` are the edges that make ours right
in any order.  `floor` is the largest sum of bytes that are alive at one moment of the text, `antichain` the
heaviest set of tensors that may be alive together in some order; `dag` the arenas of a plan for any order, in
multiples of both; `call` is what a call takes then at most, in any order and at any shape that is looked
at, in multiples of one with our plan for the order of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import click
import numpy as np
import tvm
from tvm import relax

from benchmarks.harness import print_table
from benchmarks.zoo_models import case_named
from symalloc.analysis.dependencies import (
    Collision,
    DependencyGraph,
    EdgeKind,
    HappensBefore,
    dependency_graph,
    placed_together,
)
from symalloc.analysis.interprocedural import analyse
from symalloc.planner.check.validate import fenced_graph
from symalloc.planner.interference import BufferOrder, live_sums
from symalloc.planner.memory_plan import Plan, PlanOptions
from symalloc.planner.plan_functions import known_symbols
from symalloc.planner.planned_program import planned_program
from symalloc.program.ir import Program
from symalloc.prover.prover import Prover
from symalloc.relax.extract import extract
from symalloc.relax.files.load import lower_or_refuse, plan_or_refuse
from symalloc.relax.passes.plan_pass import PlannedModule
from symalloc.relax.run.inputs import random_arguments
from symalloc.relax.run.machine import call, machines, planned_by_tvm
from symalloc.size.expr import highest
from tests.relax.reordering import error, reordered

Binding = Mapping[str, int]
COLUMNS = {
    "network": "<28",
    "pairs": ">8",
    "unordered": ">11",
    "error": ">10.1e",
    "of": ">6",
    "fences": ">8",
    "floor": ">12,",
    "antichain": ">12,",
    "dag/floor": ">11.3f",
    "dag/antichain": ">15.3f",
    "call": ">7.3f",
}


def with_constant_weights(module: tvm.IRModule, name: str, seed: int = 0) -> tvm.IRModule:
    """`module` as it is deployed: its weights are constants, and what hangs on them alone is folded."""
    function, random = module[name], np.random.default_rng(seed)
    inputs = (
        int(function.attrs["num_input"]) if "num_input" in (function.attrs or {}) else len(function.params)
    )
    weights = {p.name: _array(p.ty, random) for p in function.params[inputs:]}
    passes: list[Any] = [
        relax.transform.BindParams(name, weights),
        relax.transform.LegalizeOps(),
        relax.transform.FoldConstant(),
        relax.transform.DeadCodeElimination(),
    ]
    return tvm.transform.Sequential(passes)(module)


def _array(kind: Any, random: np.random.Generator) -> np.ndarray:
    shape = [int(extent) for extent in kind.shape.values]
    if str(kind.dtype).startswith("float"):
        return (random.standard_normal(shape) / 8).astype(str(kind.dtype))
    return random.integers(0, 4, shape).astype(str(kind.dtype))


def branchy() -> tuple[tvm.IRModule, str, Binding]:
    """Eight branches of unlike depth on one input, joined two by two."""
    builder, n = relax.BlockBuilder(), tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 256), "float32"))
    weights = [relax.Var(f"w{i}", relax.TensorType((256, 128 + 64 * (i % 3)), "float32")) for i in range(8)]
    backs = [relax.Var(f"v{i}", relax.TensorType((128 + 64 * (i % 3), 256), "float32")) for i in range(8)]
    with builder.function("main", [x, *weights, *backs], attrs={"num_input": 1}):
        with builder.dataflow():
            made = []
            for i in range(8):
                one = builder.emit(relax.op.matmul(x, weights[i]))
                for _ in range(1 + i % 3):
                    one = builder.emit(relax.op.nn.gelu(one))
                made.append(builder.emit(relax.op.matmul(one, backs[i])))
            while len(made) > 1:
                made = [builder.emit(relax.op.add(a, b)) for a, b in zip(made[::2], made[1::2], strict=True)]
            result = builder.emit_output(made[0])
        builder.emit_func_output(result)
    return builder.finalize(), "main", {"n": 64}


def _of_zoo(name: str, **at: int) -> tuple[tvm.IRModule, str, Binding]:
    case = case_named(name)
    return case.build(), case.function, at


NETWORKS: Mapping[str, Callable[[], tuple[tvm.IRModule, str, Binding]]] = {
    "llama": lambda: _of_zoo("torch_llama", s20=512),
    "bert": lambda: _of_zoo("torch_bert", s21=4, s41=256),
    "resnet": lambda: _of_zoo("torch_resnet", s21=4),
    "unet": lambda: _of_zoo("torch_unet", s77=4),
    "branchy": branchy,
}


def examine(name: str, module: tvm.IRModule, function: str, at: Binding) -> dict[str, Any]:
    """The row of one network."""
    lowered = lower_or_refuse(module, "llvm", "default")
    theirs = planned_by_tvm(lowered)
    program = extract(theirs, name="theirs", handles=True)
    relation, pairs, lost = _certificate(program, function, at)
    plain, any_order = (
        plan_or_refuse(lowered, "llvm", PlanOptions(order=order)) for order in ("total", "dag")
    )
    assert any_order.plans[function].order == "dag"
    shown = "tvm"
    if not lost:
        shown, theirs = "ours", plain.module
        program = extract(theirs, name="ours", handles=True)
        relation, _, lost = _certificate(program, function, at)
    wrong = _replayed(lowered, theirs, program, function, relation, lost, at) if lost else float("nan")
    ours = extract(any_order.module, name="any order", handles=True)
    assert not _certificate(ours, function, at)[2], f"{name}: a plan for any order has an unordered pair"
    floor, antichain = order_floors(plain, function, at)
    size = sum(arena.size.evaluate(at) for arena in any_order.plans[function].arenas)
    cost = any_order.plans[function].order_cost
    return {
        "network": name,
        "pairs": pairs,
        "unordered": len(lost) if shown == "tvm" else 0,
        "error": wrong,
        "of": shown,
        "fences": _fences(plain, function),
        "floor": floor,
        "antichain": antichain,
        "dag/floor": size / max(floor, 1),
        "dag/antichain": size / max(antichain, 1),
        "call": 1 + (float("nan") if cost is None else cost),
    }


def _certificate(program: Program, function: str, at: Binding) -> tuple[HappensBefore, int, list[Collision]]:
    """The pairs of tensors of a plan that share bytes at a binding, and the collisions among them."""
    graph = dependency_graph(analyse(program)[function])
    relation, sharing, lost = HappensBefore(graph=graph, order="dag"), 0, []
    for pair in placed_together(graph):
        one, other = (graph.points_to.regions[number] for number in pair)
        assert one.offset is not None and other.offset is not None and one.nbytes and other.nbytes
        start, end, begin, stop = (
            e.evaluate(at)
            for e in (one.offset, one.offset + one.nbytes, other.offset, other.offset + other.nbytes)
        )
        if start < stop and begin < end:
            sharing += 1
            found = next(iter(relation.collisions(*pair)), None)
            lost += [found] if found is not None and not found.in_order else []
    return relation, sharing, lost


def _replayed(
    lowered: tvm.IRModule,
    planned: tvm.IRModule,
    program: Program,
    function: str,
    relation: HappensBefore,
    lost: list[Collision],
    at: Binding,
) -> float:
    """The error of a run on one thread in an order that shows a collision, against no plan at all: the first
    of a few that show in the numbers.
    """
    seen = extract(lowered, name="lowered").functions
    arguments = random_arguments(seen[function], at, 0, seen)
    right = call(machines(lowered, "naive", target="llvm", pipeline="default")[0], function, arguments)
    for found in lost[:5]:
        order = relation.showing(found)
        other = reordered(planned, program, function, relation.graph, order)
        got = call(machines(other, "naive", target="llvm", pipeline="default")[0], function, arguments)
        if (wrong := error(right.arrays(), got.arrays())) > 0:
            return wrong
    return 0.0


def order_floors(planned: PlannedModule, function: str, at: Binding) -> tuple[int, int]:
    """The most bytes of planned tensors that are alive in the order of the text, and in any order."""
    analysis, plan = planned.analyses[function], planned.plans[function]
    buffers = [p.buffer for arena in plan.arenas for p in arena.placements if not p.buffer.returned]
    numbers = [analysis.allocations[b.var].number for b in buffers if b.var is not None]
    relation = HappensBefore(graph=dependency_graph(analysis), order="dag")
    sizes = [b.size.evaluate(at) for b in buffers]
    order = BufferOrder(buffers=buffers, numbers=numbers, relation=relation)
    return highest(live_sums(buffers), at) or 0, sum(sizes[i] for i in order.heaviest(sizes))


def _fences(planned: PlannedModule, function: str) -> int:
    written = planned_program(planned.program, planned.plans).program
    analysis = analyse(written)[function]
    graph: DependencyGraph = fenced_graph(analysis, known_symbols(analysis.cfg).domain)
    return sum(edge.kind is EdgeKind.FENCE for edge in graph.edges)


# -- random programs ---------------------------------------------------------------------------------------


_LOGGED = 10  # orders of each program in which all that kernels read is compared, too


def random_programs(seeds: range, orders: int) -> dict[str, int]:
    """Certificates of random graphs against brute force, and plans for any order of as many random programs,
    each run in so many random orders.
    """
    from symalloc.planner.plan_functions import plan_program
    from tests.analysis import test_dependencies as certificates
    from tests.planner import test_orders as plans
    from tests.planner.random_programs import logs, random_program

    figures = dict.fromkeys(("graphs", "programs", "runs", "planned tensors"), 0)
    for seed in seeds:
        certificates.test_collisions_against_all_orders(seed)
        if seed % 20 == 0:
            certificates.test_collisions_against_random_orders(seed)
        figures["graphs"] += 1
        program = random_program(seed)
        analyses = analyse(program)
        graph, random = dependency_graph(analyses["main"]), Random(seed)
        made: dict[str, Plan] = plan_program(
            program, Prover(), options=PlanOptions(order="dag"), analyses=analyses
        )
        figures["programs"] += 1
        figures["planned tensors"] += sum(len(arena.placements) for arena in made["main"].arenas)
        ways = [(at, way) for at in plans.BINDINGS for way in (False, True)]
        right = [plans.results(program, {}, at, way) for at, way in ways]
        for number in range(orders):
            other = plans.permuted(program, graph, plans.random_order(graph, random))
            at, way = ways[number % len(ways)]
            found = plans.results(other, made, at, way)
            assert found == right[number % len(ways)], f"program {seed}"
            if number < _LOGGED:
                assert logs(other, made, at, number).log == logs(other, {}, at, number).log, f"program {seed}"
            figures["runs"] += 1
    return figures


def _rows(name: str) -> Iterator[dict[str, Any]]:
    module, function, at = NETWORKS[name]()
    yield examine(name, module, function, at)
    yield examine(f"{name}, constant weights", with_constant_weights(module, function), function, at)


@click.command()
@click.option("--network", "names", multiple=True, type=click.Choice(list(NETWORKS)))
@click.option(
    "--random", "count", default=0, help="So many random programs, and no networks but those named."
)
@click.option("--first", default=0, help="The seed of the first.")
@click.option("--orders", default=100, help="Runs of each, in random orders.")
def main(names: tuple[str, ...], count: int, first: int, orders: int) -> None:
    """Print the table, then what was tried of random programs: any wrong answer ends the run."""
    np.seterr(all="ignore")
    if names or not count:
        print_table(COLUMNS, (row for name in names or NETWORKS for row in _rows(name)))
    if count:
        figures = random_programs(range(first, first + count), orders)
        print(", ".join(f"{number:,} {what}" for what, number in figures.items()), "- no wrong answer")


if __name__ == "__main__":
    main()
