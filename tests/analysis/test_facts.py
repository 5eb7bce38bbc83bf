"""What is known where: facts of asserts, casts, tests and kernels; symbols that casts and kernels bind."""

from __future__ import annotations

from dataclasses import replace

from symalloc.analysis.call_expansion import bind_kernel, comparisons
from symalloc.analysis.facts import FunctionFacts, facts_of
from symalloc.program.control_flow import control_flow_graph
from symalloc.program.ir import Function, Scalar
from symalloc.size.parse import parse_condition
from tests.program.build import KERNELS, Body, buffer, param, scalar_kernel, size


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
