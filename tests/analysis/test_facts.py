"""What is known where: facts of asserts, casts, tests and kernels; symbols that casts and kernels bind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.analysis.call_expansion import bind_kernel, comparisons
from symalloc.analysis.facts import FunctionFacts, facts_of
from symalloc.program.control_flow import ControlFlowGraph, PointKind, control_flow_graph
from symalloc.program.ir import Assert, Function, If, Operand, Origin, Scalar
from symalloc.size.condition import Condition
from symalloc.size.parse import parse_condition
from tests.program.build import KERNELS, NOTHING, Body, buffer, param, scalar_kernel, size


def facts(function: Function) -> FunctionFacts:
    return facts_of(control_flow_graph(function), KERNELS)


def test_extents_of_parameters() -> None:
    entry = facts(Body(param("x", "n - 4"), param("y", "2*n")).finish()).entry
    assert "n >= 4" in [str(c) for c in entry]


def test_scalars_bind_symbols_of_a_kernel() -> None:
    kernel = scalar_kernel("f", buffer("a", "2*k"), "k")
    arguments = (param("x", "n"), Scalar(size("m")))
    assert {n: str(e) for n, e in bind_kernel(kernel, arguments).items()} == {"k": "m"}
    (compared,) = comparisons(kernel, arguments)
    assert (str(compared.actual), str(compared.expected)) == ("n", "2*m")


def test_the_first_extent_that_stands_alone_binds() -> None:
    kernel = scalar_kernel("f", buffer("a", "k + 1"), buffer("b", "k"), buffer("c", "k"))
    arguments = tuple(param(name, extent) for name, extent in (("x", "p"), ("y", "q"), ("z", "r")))
    found = [(str(c.actual), str(c.expected)) for c in comparisons(kernel, arguments)]
    assert found == [("p", "q + 1"), ("q", "q"), ("r", "q")]


def test_what_a_kernel_asserts_holds_behind_its_call() -> None:
    asserts = (parse_condition("k <= 4"), parse_condition("z >= 1"))
    guard = replace(scalar_kernel("guard", "k", "j"), asserts=asserts, others=("log",))
    body = Body(param("x", "n"))
    body.call("guard", Scalar(size("2*n")), Scalar(size("n")))
    body.call("read", body.params[0])
    found = facts_of(control_flow_graph(body.finish()), {**KERNELS, "guard": guard}).before
    assert [[str(c) for c in one.guards] for one in found] == [[], ["n <= 2"], ["n <= 2"]]


@st.composite
def graphs(draw: st.DrawFn) -> ControlFlowGraph:
    """Ifs within Ifs, and checks among them, each about a symbol of its own."""
    body = Body(param("x", 8))
    names: list[str] = []

    def fresh() -> str:
        names.append(f"s{len(names)}")
        return f"{names[-1]} >= 1"

    def block(depth: int) -> Operand:
        for _ in range(draw(st.integers(0, 2 if depth < 2 else 1))):  # facts about more are not kept
            if depth < 2 and draw(st.booleans()):
                body.branch(lambda: block(depth + 1), lambda: block(depth + 1), condition=fresh())
            else:
                body.check(fresh())
        return NOTHING

    block(0)
    return control_flow_graph(body.finish(symbols=dict.fromkeys(names, Origin.DIMENSION)))


def holds(condition: Condition | None, at: Mapping[str, int]) -> bool:
    assert condition is not None
    return condition.evaluate(at)


def taken(cfg: ControlFlowGraph, at: Mapping[str, int]) -> list[int]:
    """The points that are got to, by the definition of the graph."""
    way, index = [0], 0
    while cfg.points[index].kind is not PointKind.EXIT:
        point, made = cfg.points[index], cfg.points[index].instruction
        if isinstance(made, Assert) and not holds(made.condition, at):
            break
        if point.kind is PointKind.BRANCH and isinstance(made, If) and not holds(made.condition, at):
            index = cfg.joins[index][0]
        elif point.kind is PointKind.ELSE:
            index = cfg.joins[point.branch][1]
        index += 1
        way.append(index)
    return way


@settings(max_examples=100)
@given(graphs(), st.integers(0, 2**32))
def test_the_facts_in_front_of_a_point_are_those_of_the_bindings_that_get_there(
    cfg: ControlFlowGraph, seed: int
) -> None:
    random, facts = Random(seed), facts_of(cfg, {}).before
    for _ in range(20):
        at = {name: int(random.random() < 0.8) for name in cfg.function.symbols}
        got_to = {index for index, known in enumerate(facts) if all(c.evaluate(at) for c in known.guards)}
        assert got_to == set(taken(cfg, at))


@settings(max_examples=100)
@given(graphs(), st.integers(0, 2**32))
def test_path_conditions_name_the_branches_that_lead_to_a_point(cfg: ControlFlowGraph, seed: int) -> None:
    random, conditions = Random(seed), cfg.paths
    tests = {index: point.instruction for index, point in enumerate(cfg.points) if index in cfg.joins}
    checked = {
        c for p in cfg.points if isinstance(p.instruction, Assert) for c in [p.instruction.condition] if c
    }
    for _ in range(20):
        at = {name: random.randrange(2) for name in cfg.function.symbols}
        at |= {name: 1 for condition in checked for name in condition.symbols}
        sides = {n: holds(made.condition, at) for n, made in tests.items() if isinstance(made, If)}
        on_path = {n for n, path in enumerate(conditions) if all(sides[b] is side for b, side in path)}
        assert on_path == set(taken(cfg, at))
