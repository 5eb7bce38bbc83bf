"""The ways through a function, for each outcome of its conditions."""

from __future__ import annotations

from symalloc.analysis.paths import enumerate_paths
from symalloc.program.control_flow import control_flow_graph
from symalloc.program.ir import Alias, Block, CallKernel, Function, If, Instruction, TextLiteral, Var
from symalloc.program.types import OpaqueType

VOID = OpaqueType()
X = Var("x", VOID)


def kernel(name: str) -> CallKernel:
    return CallKernel(var=Var(name, VOID), kernel=name, arguments=())


def branch(name: str, then: tuple[Instruction, ...], otherwise: tuple[Instruction, ...]) -> If:
    sides = (Block(instructions=one, result=one[-1].var if one else X) for one in (then, otherwise))
    return If(
        var=Var(name, VOID), condition=None, test=TextLiteral("c"), then=next(sides), otherwise=next(sides)
    )


def function(*body: Instruction) -> Function:
    block = Block(instructions=body, result=X)
    return Function(name="main", params=(X,), body=block, result_type=VOID, symbols={})


def names(way: Function) -> str:
    """The variables that are bound, in order; behind an alias what it stands for."""
    return " ".join(
        f"{one.var.name}={one.source.name}"
        if isinstance(one, Alias) and isinstance(one.source, Var)
        else one.var.name
        for one in way.body.instructions
    )


def test_a_function_without_an_if_has_one_way() -> None:
    straight = function(kernel("a"), kernel("b"))
    assert enumerate_paths(control_flow_graph(straight), most=1) == [((), straight)]


def test_ifs_within_and_behind_each_other() -> None:
    inner = branch("y", (kernel("b"),), ())
    whole = function(kernel("a"), branch("z", (inner,), (kernel("c"),)), branch("w", (kernel("d"),), ()))
    found = enumerate_paths(control_flow_graph(whole), most=6)
    assert found is not None
    assert [names(way.function) for way in found] == [
        "a b y=b z=y d w=d",
        "a b y=b z=y w=x",
        "a y=x z=y d w=d",
        "a y=x z=y w=x",
        "a c z=c d w=d",
        "a c z=c w=x",
    ]


def test_too_many_ways_are_none() -> None:
    many = control_flow_graph(function(*(branch(f"y{i}", (kernel("a"),), ()) for i in range(2000))))
    assert enumerate_paths(many, most=16) is None


def test_as_many_ways_as_there_may_be() -> None:
    two = control_flow_graph(function(*(branch(f"y{i}", (kernel("a"),), ()) for i in range(2))))
    found = enumerate_paths(two, most=4)
    assert found is not None
    assert len(found) == 4
    assert enumerate_paths(two, most=3) is None
