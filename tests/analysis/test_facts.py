"""What is known where: facts of asserts, casts, tests and kernels; symbols that casts and kernels bind."""

from __future__ import annotations

from dataclasses import replace

from symalloc.analysis.argument_binding import bind_kernel, comparisons
from symalloc.analysis.facts import FunctionFacts, facts_of
from symalloc.program.control_flow import PointKind, control_flow_graph
from symalloc.program.ir import Function, Operand, Scalar
from symalloc.size.parse import parse_condition
from tests.program.build import KERNELS, Body, buffer, param, scalar_kernel, size


def facts(function: Function) -> FunctionFacts:
    return facts_of(control_flow_graph(function), KERNELS)


def known(function: Function) -> list[list[str]]:
    return [[str(c) for c in (*f.guards, *f.calls)] for f in facts(function).before]


def test_an_assert_holds_behind_itself() -> None:
    body = Body(param("x", "n"))
    body.check("n <= 4")
    body.call("read", body.params[0])
    assert known(body.finish()) == [[], ["n <= 4"], ["n <= 4"]]


def test_facts_of_a_branch_end_with_it() -> None:
    def inside() -> Operand:
        body.check("n % 2 == 0")
        return body.params[0]

    body = Body(param("x", "n"))
    body.branch(inside, lambda: body.params[0], condition="n <= 4")
    function = body.finish()
    marks = [step.kind for step in control_flow_graph(function).points]
    assert marks == [PointKind.BRANCH, PointKind.INSTRUCTION, PointKind.ELSE, PointKind.JOIN, PointKind.EXIT]
    behind = ["(n <= 4 and n % 2 == 0) or n >= 5"]
    assert known(function) == [[], ["n <= 4"], ["n <= 4", "n % 2 == 0"], ["n >= 5"], behind]


def test_a_kernel_leaves_the_comparisons_that_say_something() -> None:
    body = Body(param("x", "n"), param("y", "m"), param("z", "n"))
    body.call("add", *body.params)
    assert known(body.finish())[-1] == ["m == n"]


def test_a_cast_defines_and_compares() -> None:
    body = Body(param("x", "n", "m"))
    body.cast(body.params[0], "k", 8, defines=["k"])
    found = facts(body.finish())
    assert {name: str(value) for name, value in found.definitions.items()} == {"k": "n"}
    assert [str(c) for c in found.before[-1].guards] == ["m == 8"]


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
    guard = replace(
        scalar_kernel("guard", "k", "j"), asserts=(parse_condition("k <= 4"), parse_condition("z >= 1"))
    )
    body = Body(param("x", "n"))
    body.call("guard", Scalar(size("2*n")), Scalar(size("n")))
    body.call("read", body.params[0])
    found = facts_of(control_flow_graph(body.finish()), {**KERNELS, "guard": guard}).before
    assert [[str(c) for c in one.guards] for one in found] == [[], ["n <= 2"], ["n <= 2"]]
