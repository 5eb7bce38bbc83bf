"""What can be planned of small programs, written as the extractor makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.analysis.interprocedural import analyse
from symalloc.planner.buffers.assignment import assign
from symalloc.planner.buffers.candidates import Sizes, find_candidates, known_symbols, left_alone
from symalloc.planner.grid import ExtentBounds
from symalloc.planner.interference import interference
from symalloc.planner.memory_plan import Buffer, PlanOptions, Unplanned
from symalloc.program import ir
from symalloc.program.types import DType, OpaqueType, ScalarType, ShapeType, TensorType, Type
from symalloc.prover.prover import Prover
from symalloc.size.choice import maximum, minimum, select
from symalloc.size.condition import lt
from symalloc.size.expr import Expr, floordiv, mod, round_up, symbol
from tests.scale import tries

N, K, S = symbol("n"), symbol("k"), symbol("s")
FLOAT = DType("float32", 32)
X = ir.Var("x", TensorType(shape=(N,), dtype=FLOAT))
VOID = OpaqueType()
ARENA = PlanOptions()


def alloc(name: str, *shape: Expr, device: int = 0) -> ir.AllocFresh:
    extents = shape or (N,)
    return ir.AllocFresh(
        var=ir.Var(name, TensorType(shape=extents, dtype=FLOAT)), shape=extents, dtype=FLOAT, device=device
    )


def kernel(*arguments: ir.Operand) -> ir.CallKernel:
    return ir.CallKernel(var=ir.Var("_", VOID), kernel="k", arguments=arguments)


def packed(ownership: ir.Ownership, *arguments: ir.Operand) -> ir.CallPacked:
    return ir.CallPacked(
        var=ir.Var("r", VOID), name="f", arguments=arguments, ownership=ownership, pure=False
    )


def function(
    *body: ir.Instruction, result: ir.Operand = X, name: str = "main", params: tuple[ir.Var, ...] = (X,)
) -> ir.Function:
    return ir.Function(
        name=name,
        params=params,
        body=ir.Block(instructions=body, result=result),
        result_type=VOID,
        symbols={"n": ir.Origin.DIMENSION, "k": ir.Origin.CAST, "s": ir.Origin.SCALAR},
    )


def found_in(
    program: ir.Program, options: PlanOptions = ARENA
) -> tuple[Sequence[Sequence[Buffer]], tuple[Unplanned, ...]]:
    analyses = analyse(program)
    sizes = Sizes(known_symbols(analyses["main"].cfg), Prover())
    storages = options.flavour == "storages"
    candidates = find_candidates(program, analyses, "main", sizes, storages=storages)
    found = assign(candidates, ExtentBounds(), options)
    return found.arenas, (*candidates.left, *left_alone(found.lone))


class Found(dict[str, Buffer]):
    """Buffers by name, and the number of the arena that each lies in."""

    def __init__(self, arenas: Sequence[Sequence[Buffer]]) -> None:
        dict.__init__(self, {b.name: b for arena in arenas for b in arena})
        self.arenas = {b.name: number for number, arena in enumerate(arenas) for b in arena}


def split(
    *body: ir.Instruction,
    result: ir.Operand = X,
    callees: tuple[ir.Function, ...] = (),
    options: PlanOptions = ARENA,
) -> tuple[Found, dict[str, Unplanned]]:
    main = function(*body, result=result)
    program = ir.Program(name="m", functions={f.name: f for f in (main, *callees)}, kernels={})
    found, left = found_in(program, options=options)
    return Found(found), {u.name: u for u in left}


def together(found: dict[str, Buffer]) -> set[frozenset[str]]:
    names = list(found)
    pairs = interference(tuple(found.values()))
    return {frozenset((names[a], names[b])) for a, others in enumerate(pairs) for b in others}


def branch(
    then: tuple[ir.Instruction, ...],
    otherwise: tuple[ir.Instruction, ...],
    yields: tuple[ir.Operand, ir.Operand],
) -> ir.If:
    return ir.If(
        var=ir.Var("y", VOID),
        condition=None,
        test=ir.TextLiteral("c"),
        then=ir.Block(instructions=then, result=yields[0]),
        otherwise=ir.Block(instructions=otherwise, result=yields[1]),
    )


def test_many_undecided_ifs_lose_precision_and_nothing_else() -> None:
    body: list[ir.Instruction] = []
    for i in range(8):
        a, b = alloc(f"a{i}"), alloc(f"b{i}")
        body.append(branch((a, kernel(X, a.var)), (b, kernel(X, b.var)), (a.var, b.var)))
    found, _ = split(*body, kernel(*(i.var for i in body)))
    pairs = together(found)
    assert all(frozenset((f"a{i}", f"b{j}")) in pairs for i in range(8) for j in range(8) if i != j)
    few, _ = split(*body[:3], kernel(*(i.var for i in body[:3])))
    assert not any(frozenset((f"a{i}", f"b{i}")) in together(few) for i in range(3))


def test_a_library_function_whose_result_nobody_uses_keeps_nothing() -> None:
    a, out = alloc("a"), alloc("out")
    library = replace(packed(ir.Ownership.UNKNOWN, a.var, out.var), may_capture=True)
    before = (a, kernel(X, a.var), out)
    assert split(*before, library, kernel(out.var))[0].keys() == {"a", "out"}
    handed_on = kernel(library.var)
    assert not split(*before, library, kernel(out.var), handed_on)[0]
    assert not split(*before, kernel(X, out.var), library, kernel(out.var))[0], (
        "all is written: it may keep it"
    )


def test_what_escapes_stays_unplanned() -> None:
    a, b, c, d = alloc("a"), alloc("b"), alloc("c"), alloc("d")
    kept = packed(ir.Ownership.UNKNOWN, b.var)
    odd = ir.NotUnderstood(var=ir.Var("o", VOID), what="closure", reads=(c.var,))
    found, left = split(a, b, c, d, kernel(X, a.var, b.var), kept, odd, kernel(d.var), result=a.var)
    assert set(found) == {"d"}
    assert left["a"].reason == "it is returned"
    assert "packed function `f`" in left["b"].reason
    assert "closure" in left["c"].reason


def call(name: str, *arguments: ir.Operand, var: ir.Var | None = None) -> ir.CallFunction:
    return ir.CallFunction(var=var or ir.Var("r", X.type), name=name, arguments=arguments)


def test_callees_are_looked_into() -> None:
    p, q, r = ir.Var("p", X.type), ir.Var("q", X.type), ir.Var("r", X.type)
    returns = function(name="returns", params=(p,), result=p)
    reads = function(kernel(q), name="reads", params=(q,), result=ir.TextLiteral("nothing"))
    keeps = function(
        packed(ir.Ownership.UNKNOWN, r), name="keeps", params=(r,), result=ir.TextLiteral("nothing")
    )
    a, b, c, d = (alloc(name) for name in "abcd")
    again = call("returns", a.var)
    body = (a, b, c, again, call("reads", b.var), call("keeps", c.var), d, kernel(again.var, d.var))
    found, left = split(*body, callees=(returns, reads, keeps))
    assert set(found) == {"a", "b", "d"}
    assert left["c"].reason == "the function `keeps` may keep it"
    assert frozenset("ad") in together(found), "what the callee returns is the argument"


def test_recursive_functions_are_left_alone_and_said_to_be() -> None:
    a = alloc("a")
    found, left = split(a, kernel(X, a.var), call("main", a.var))
    assert not found
    assert "calls itself" in left["a"].reason


def test_a_packed_function_that_gives_nothing_back_may_keep_what_it_is_given() -> None:
    a, b, c = alloc("a"), alloc("b"), alloc("c")
    watch = ir.CallPacked(
        var=ir.Var("r", VOID),
        name="watch",
        arguments=(a.var,),
        ownership=ir.Ownership.FRESH,
        pure=False,
        may_capture=True,
    )
    library = replace(watch, name="library", arguments=(b.var, c.var), var=ir.Var("r", VOID))
    found, left = split(a, kernel(X, a.var), b, kernel(X, b.var), watch, c, library, kernel(c.var))
    assert set(found) == {"b", "c"}, "a library function is given its result's memory, which is still empty"
    assert left["a"].reason == "the packed function `watch` may keep or return it"


def test_memory_of_two_devices_and_scopes_is_kept_apart_in_order() -> None:
    a, b, c = alloc("a", device=1), alloc("b"), alloc("c", device=1)
    found, _ = split(a, kernel(X, a.var), b, kernel(a.var, b.var), c, kernel(b.var, c.var))
    assert [(one.id, one.name, one.device) for one in found.values()] == [
        (0, "b", 0),
        (1, "a", 1),
        (2, "c", 1),
    ]


def test_sizes_must_be_known() -> None:
    nowhere, huge = alloc("b", symbol("s")), alloc("c", N * 2**46)
    unknown = ir.AllocFresh(var=ir.Var("d", VOID), shape=None, dtype=FLOAT)
    inexact = ir.AllocFresh(var=ir.Var("e", VOID), shape=None, dtype=FLOAT, inexact="`n / 2.5` is no integer")
    never = alloc("f", maximum(N, 2**62))  # no guard lets a shape pass
    made = (nowhere, huge, unknown, inexact, never)
    found, left = split(*made, kernel(*(one.var for one in made)))
    assert not found
    assert "which no parameter and no match_cast binds" in left["b"].reason
    assert all("beyond what can be allocated" in left[name].reason for name in "cf")
    assert left["d"].reason == "its shape is not known"
    assert left["e"].reason == "its shape is not known: `n / 2.5` is no integer"


def test_choices_that_are_never_taken_are_left_out_of_sizes() -> None:
    half = select(lt(N, 0), floordiv(N, 2) + N, floordiv(N, 2))  # how TVM counts a place from the end
    slice_ = alloc("a", minimum(maximum(half, 0), N) - minimum(N, 0))
    found, _ = split(slice_, kernel(slice_.var))
    assert found["a"].size == round_up(4 * floordiv(N, 2), 64)


extents = st.integers(-6, 9)


@given(st.sampled_from([floordiv, mod]), st.sampled_from([N, S, N - 4, N * S, N - S]), extents, extents)
@settings(max_examples=tries(40, 400))
def test_divisors_that_may_be_zero_cost_no_place(
    divide: Callable[[Expr, Expr], Expr], divisor: Expr, n: int, s: int
) -> None:
    """A scalar parameter `s` may be negative.  What is set aside is right wherever the shape is defined."""
    extent, scalar = divide(N * 3 + 7, divisor), ir.Var("s", ScalarType(dtype=DType("int64", 64), value=S))
    a = alloc("a", extent)
    main = function(a, kernel(a.var), params=(X, scalar))
    (((buffer,),), _) = found_in(ir.Program(name="m", functions={"main": main}, kernels={}))
    at = {"n": abs(n), "s": s}
    room = buffer.size.evaluate(at)
    assert room >= 0
    assert room % 64 == 0
    if divisor.evaluate(at) != 0:
        assert 0 <= room - max(4 * extent.evaluate(at), 0) < 64


def cast(*shape: Expr, source: ir.Operand = X) -> ir.MatchCast:
    target = TensorType(shape=shape, dtype=FLOAT)
    names = frozenset(e.as_symbol for e in shape if e.as_symbol is not None)
    return ir.MatchCast(var=ir.Var("cast", target), source=source, target=target, defines=names)


def test_sizes_that_come_later_get_an_arena_behind_the_cast() -> None:
    a, b, c = alloc("a", 2 * N), alloc("b", K), alloc("c", N)
    known = cast(K)
    found, left = split(a, kernel(X, a.var), known, b, kernel(known.var, b.var), c, kernel(b.var, c.var))
    assert not left
    assert found.keys() == {"a", "b", "c"}
    assert (found["a"].defined_by, found["b"].defined_by) == (None, known.var)


def test_what_crosses_a_cast_stays_alone_where_it_would_hold_a_large_arena() -> None:
    large, small, late, later = alloc("large", 512 * N), alloc("small", N), alloc("late", 512 * K), alloc("l")
    known = cast(K)
    body = (large, kernel(X, large.var), small, kernel(large.var, small.var), known)
    behind = (late, kernel(known.var, late.var), later, kernel(small.var, late.var, later.var))
    found, left = split(*body, *behind)
    assert not left
    assert {name: one.defined_by for name, one in found.items()} == {
        "large": None,
        "small": None,
        "late": known.var,
        "l": None,
    }
    assert found.arenas["small"] != found.arenas["large"]


def test_a_size_that_comes_inside_a_branch_gets_an_arena_there() -> None:
    known, inside, outside = cast(K), alloc("inside", K), alloc("outside")
    choice = branch((known, inside, kernel(known.var, inside.var)), (), (X, X))
    found, left = split(outside, kernel(X, outside.var), choice)
    assert not left
    assert {name: one.defined_by for name, one in found.items()} == {"inside": known.var, "outside": None}
    assert found.arenas["inside"] != found.arenas["outside"]


def test_a_size_that_comes_in_several_branches_is_left_alone() -> None:
    """It is another one in each, and what one binds the other does not see."""
    known, a, b = cast(K), alloc("a", K), alloc("b", K)
    choice = branch(
        (known, a, kernel(a.var)), (replace(cast(K), defines=frozenset()), b, kernel(b.var)), (X, X)
    )
    found, left = split(choice)
    assert not found
    assert (
        left["a"].reason == "its size depends on `k`, which gets its value from `cast` or in another branch"
    )
    assert left["b"].reason == left["a"].reason


def taking_in_a_branch(
    *before: ir.Instruction, behind: tuple[ir.Instruction, ...]
) -> tuple[ir.Instruction, ...]:
    """A function that takes 4 * k bytes in one branch of an If, where no plan places them."""
    known, b = cast(K), alloc("b", K)
    return (*before, branch((known, b, kernel(known.var, b.var)), (cast(K),), (X, X)), *behind)


def test_no_arena_is_held_for_all_while_memory_is_taken_that_it_cannot_hold() -> None:
    early, late, later = alloc("early"), alloc("late"), alloc("later")
    behind = (late, later, kernel(early.var, late.var, later.var))
    found, _ = split(*taking_in_a_branch(early, kernel(X, early.var), behind=behind))
    assert found.keys() == {"early", "late", "later"}
    assert len({*found.arenas.values()}) == 2


def test_an_arena_is_held_where_all_of_it_lives_beside_what_is_taken() -> None:
    early, other = alloc("early"), alloc("other")
    body = taking_in_a_branch(
        early, other, kernel(X, early.var, other.var), behind=(kernel(early.var, other.var),)
    )
    found, left = split(*body)
    assert found.keys() == {"early", "other"}
    assert left.keys() == {"b"}


@pytest.mark.parametrize(
    "kind", [ScalarType(value=symbol("s"), dtype=None), ShapeType(values=(symbol("s"),))]
)
def test_extents_that_nothing_checks_may_be_negative_and_then_reserve_nothing(kind: Type) -> None:
    a = alloc("a", symbol("s"))
    main = function(a, kernel(X, a.var), params=(X, ir.Var("given", kind)))
    found, left = found_in(ir.Program(name="m", functions={"main": main}, kernels={}))
    assert not left
    ((one,),) = found
    assert [one.size.evaluate({"s": s}) for s in (-65, -1, 0, 1)] == [0, 0, 0, 64]


def test_what_a_computed_scalar_sizes_is_left_alone() -> None:
    a, given = alloc("a", symbol("s")), ir.Var("given", ScalarType(value=symbol("s"), dtype=None))
    main = function(replace(packed(ir.Ownership.FRESH), var=given), a, kernel(X, a.var))
    found, left = found_in(ir.Program(name="m", functions={"main": main}, kernels={}))
    assert not found
    wanted = "its size depends on `s`, which `given` computes as a scalar: only a match_cast makes it a size"
    assert left[0].reason == wanted
