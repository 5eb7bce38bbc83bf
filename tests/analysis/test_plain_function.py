"""Plain functions: what is found with numbers is what the analyses of any function find with sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.program.ir import AllocFresh, ConstantTensor, Operand, Program, TupleValue, Var
from symalloc.program.types import TupleType
from symalloc.relax.emit.offset_uses import offset_uses
from tests.program.build import NOTHING, U8, Body, param, tensor_of
from tests.scale import tries

SIZE = 4
CONSTANT = ConstantTensor(tensor_of(SIZE))
ARGUMENTS = {"fill": 1, "scatter": 1, "update": 1, "read": 1, "copy": 2, "add": 3}


def fresh(body: Body, size: int = SIZE) -> Var:
    kind = tensor_of(size)
    return body.emit(AllocFresh(var=body.var(kind), shape=kind.shape, dtype=U8))


@st.composite
def plain_programs(draw: st.DrawFn, ifs: bool = False) -> Program:
    """Kernels that write in part or in full, one tensor twice, what a caller gives, and never; with `ifs`
    within and behind each other, some on one test.
    """
    pair = Var("pair", TupleType(fields=(tensor_of(SIZE), tensor_of(2))))
    body = Body(param("x", SIZE), pair)
    known = [body.params[0], fresh(body), body.take(pair, 0)]
    grow(draw, body, known, 2 if ifs else 0)
    results = [draw(st.sampled_from(known)), TupleValue((known[0], known[-1])), NOTHING]
    return body.program(draw(st.sampled_from(results)))


def grow(draw: st.DrawFn, body: Body, known: list[Var], ifs: int) -> None:
    """Go on with instructions on `known` tensors, to which new ones are added, and Ifs up to that depth."""

    def operand() -> Operand:
        return draw(st.sampled_from([*known, *known, CONSTANT]))

    def side() -> Operand:
        inner = [*known]
        grow(draw, body, inner, ifs - 1)
        return draw(st.sampled_from([*inner[2:], TupleValue((inner[0], inner[-1])), CONSTANT]))

    kinds = ["new", "name", "field", *ARGUMENTS, *(["if", "if"] if ifs else [])]
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=14 if ifs in {0, 2} else 5)):
        if kind == "new":
            known.append(fresh(body, draw(st.sampled_from([2, SIZE]))))
        elif kind == "name":
            source = draw(st.sampled_from(known))
            known.append(draw(st.sampled_from([body.alias, lambda a: body.reshape(a, SIZE)]))(source))
        elif kind == "field":
            known.append(body.take(body.tuple(*draw(st.permutations(known))[:2]), draw(st.integers(0, 1))))
        elif kind == "if":
            known.append(body.branch(side, side, test=draw(st.sampled_from([None, known[0], known[1]]))))
        else:
            body.call(kind, *(operand() for _ in range(ARGUMENTS[kind])))


def without_short_cut(analysis: FunctionAnalysis) -> FunctionAnalysis:
    found = replace(analysis)
    found.__dict__["plain"] = None
    return found


@settings(max_examples=tries(150, 3000))
@given(plain_programs(), st.sets(st.integers(0, 2)), st.data())
def test_what_is_found_is_the_same_as_in_any_function(
    program: Program, accepting: set[int], data: st.DataObject
) -> None:
    analysis = analyse(program)["main"]
    other = without_short_cut(analysis)
    assert analysis.plain is not None
    assert analysis.allocations == other.allocations
    assert list(analysis.allocations) == list(other.allocations)
    numbers = [made.number for made in analysis.allocations.values()]
    assert analysis.live_ranges(numbers) == other.live_ranges(numbers)
    away = {var for var in analysis.allocations if data.draw(st.booleans())}
    assert offset_uses(analysis, lambda _: accepting, away) == offset_uses(other, lambda _: accepting, away)


def test_memory_that_is_filled_anew_is_free_in_between() -> None:
    body = Body()
    a = fresh(body)
    for kernel in ("fill", "read", "fill", "read"):
        body.call(kernel, a)
        body.call("fill", fresh(body))
    analysis = analyse(body.program(NOTHING))["main"]
    assert analysis.plain is not None
    (first, *_), points = analysis.plain.live_ranges([made.number for made in analysis.allocations.values()])
    found = analysis.live_ranges([analysis.allocations[a].number])
    assert [live for live, _, _ in found.of.values()] == [((0, 3), (4, 7))]
    assert (first, len(points)) == (analysis.allocations[a].number, 9)


def a_branch(body: Body, a: Var) -> Operand:
    return body.branch(lambda: a, lambda: fresh(body))


def a_packed_function(body: Body, a: Var) -> Operand:
    return body.packed("f", a)


def a_view(body: Body, a: Var) -> Operand:
    return body.view(a, 2, offset=2)


def a_tuple_for_a_kernel(body: Body, a: Var) -> Operand:
    body.call("read", body.tuple(a, a))
    return a


def a_kernel_that_is_not_there(body: Body, a: Var) -> Operand:
    body.call("unheard_of", a)
    return a


def too_few_arguments(body: Body, a: Var) -> Operand:
    body.call("add", a, a)
    return a


@pytest.mark.parametrize(
    "write",
    [
        a_branch,
        a_packed_function,
        a_view,
        a_tuple_for_a_kernel,
        a_kernel_that_is_not_there,
        too_few_arguments,
    ],
)
def test_other_functions_are_not_plain(write: Callable[[Body, Var], Operand]) -> None:
    body = Body(param("x", SIZE))
    analysis = analyse(body.program(write(body, fresh(body))))["main"]
    assert analysis.plain is None
    assert len(analysis.allocations) == 1 + (write is a_branch)
