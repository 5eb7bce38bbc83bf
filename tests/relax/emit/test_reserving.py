"""Which instruction each arena is reserved in front of."""

from __future__ import annotations

from symalloc.planner.memory_plan import Arena, Buffer, Placement, Plan
from symalloc.planner.planned_program import first_uses
from symalloc.program.control_flow import control_flow_graph
from symalloc.program.ir import AllocFresh, Block, Function, If, TextLiteral, Var
from symalloc.program.types import DType, OpaqueType
from symalloc.size.expr import ZERO, constant

FLOAT, VOID = DType("float32", 32), OpaqueType()


def alloc(name: str) -> AllocFresh:
    return AllocFresh(var=Var(name, VOID), shape=(constant(16),), dtype=FLOAT, device=0)


def arena(*members: AllocFresh, after: Var | None = None) -> Arena:
    size = constant(64)
    placed = (
        Placement(
            buffer=Buffer(id=i, name=m.var.name, size=size, nbytes=size, live=((0, 1),), var=m.var),
            offset=ZERO,
        )
        for i, m in enumerate(members)
    )
    return Arena(device=0, scope="global", size=size, placements=tuple(placed), defined_by=after)


def test_an_arena_is_reserved_in_the_innermost_block_in_front_of_its_first_tensor() -> None:
    a, b, inside, deep, late = (alloc(name) for name in ("a", "b", "inside", "deep", "late"))
    inner = If(var=Var("i", VOID), condition=None, test=TextLiteral("d"), then=block(deep), otherwise=block())
    outer = If(
        var=Var("o", VOID),
        condition=None,
        test=TextLiteral("c"),
        then=block(),
        otherwise=block(inside, inner),
    )
    plan = Plan(
        function="f",
        arenas=(arena(deep), arena(b, a), arena(inside, late), arena(late, after=a.var), arena()),
    )
    function = Function(name="f", params=(), body=block(a, b, outer, late), result_type=VOID, symbols={})
    assert first_uses(plan, control_flow_graph(function)) == {
        deep.var: [0],
        a.var: [1],
        outer.var: [2],
        late.var: [3],
    }


def block(*instructions: AllocFresh | If) -> Block:
    return Block(instructions=instructions, result=TextLiteral("nothing"))
