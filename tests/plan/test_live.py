"""Live ranges and aliases on small programs, written as the extractor makes them."""

from __future__ import annotations

from symalloc.plan.buffers import buffers
from symalloc.plan.interference import interference
from symalloc.plan.model import Buffer, Unplanned
from symalloc.program.model import (
    Alias,
    AllocFresh,
    Block,
    CallFunction,
    CallKernel,
    CallPacked,
    Function,
    If,
    Instruction,
    MakeTuple,
    NotUnderstood,
    Operand,
    Origin,
    Ownership,
    Program,
    TakeField,
    Text,
    Var,
    View,
)
from symalloc.program.types import DType, OpaqueType, TensorType
from symalloc.prove.domain import Domain
from symalloc.prove.prover import Prover
from symalloc.size.expr import Expr, symbol
from symalloc.size.operations import floordiv

N, K = symbol("n"), symbol("k")
FLOAT = DType("float32", 32)
X = Var("x", TensorType(shape=(N,), dtype=FLOAT))
VOID = OpaqueType()


def alloc(name: str, *shape: Expr, device: int = 0) -> AllocFresh:
    extents = shape or (N,)
    return AllocFresh(
        var=Var(name, TensorType(shape=extents, dtype=FLOAT)), shape=extents, dtype=FLOAT, device=device
    )


def kernel(*arguments: Operand) -> CallKernel:
    return CallKernel(var=Var("_", VOID), kernel="k", arguments=arguments)


def packed(ownership: Ownership, *arguments: Operand) -> CallPacked:
    return CallPacked(var=Var("r", VOID), name="f", arguments=arguments, ownership=ownership, pure=False)


def function(
    *body: Instruction, result: Operand = X, name: str = "main", params: tuple[Var, ...] = (X,)
) -> Function:
    return Function(
        name=name,
        params=params,
        body=Block(instructions=body, result=result),
        result_type=VOID,
        symbols={"n": Origin.DIMENSION, "k": Origin.CAST, "s": Origin.SCALAR},
    )


def split(
    *body: Instruction, result: Operand = X, callees: tuple[Function, ...] = ()
) -> tuple[dict[str, Buffer], dict[str, Unplanned]]:
    main = function(*body, result=result)
    program = Program(name="m", functions={f.name: f for f in (main, *callees)}, kernels={})
    found, left = buffers(main, program, Domain(), Prover())
    return {b.name: b for b in found}, {u.name: u for u in left}


def together(found: dict[str, Buffer]) -> set[frozenset[str]]:
    names = {b.id: b.name for b in found.values()}
    pairs = interference(tuple(found.values()))
    return {frozenset((names[a], names[b])) for a, others in pairs.items() for b in others}


def test_a_range_reaches_from_the_allocation_to_the_last_use() -> None:
    a, b, c = alloc("a"), alloc("b"), alloc("c")
    found, _ = split(a, kernel(X, a.var), b, kernel(a.var, b.var), c, kernel(b.var, c.var))
    assert [found[n].live for n in "abc"] == [((0, 4),), ((2, 6),), ((4, 6),)]
    assert together(found) == {frozenset("ab"), frozenset("bc")}


def test_aliases_keep_memory_alive() -> None:
    a, b, c = alloc("a"), alloc("b"), alloc("c")
    named = Alias(var=Var("named", a.var.type), source=a.var)
    seen = View(
        var=Var("v", a.var.type), source=named.var, shape=(N,), dtype=FLOAT, offset=None, kind="reshape"
    )
    found, _ = split(a, kernel(X, a.var), named, seen, b, kernel(X, b.var), c, kernel(seen.var, c.var))
    assert frozenset("ab") in together(found)


def test_tuple_fields_are_followed_one_by_one() -> None:
    a, b, c = alloc("a"), alloc("b"), alloc("c")
    both = MakeTuple(var=Var("both", VOID), fields=(a.var, b.var))
    second = TakeField(var=Var("second", b.var.type), source=both.var, index=1)
    found, _ = split(a, b, kernel(a.var, b.var), both, second, c, kernel(second.var, c.var))
    assert frozenset("bc") in together(found)
    assert frozenset("ac") not in together(found)


def branch(
    then: tuple[Instruction, ...], otherwise: tuple[Instruction, ...], yields: tuple[Operand, Operand]
) -> If:
    return If(
        var=Var("y", VOID),
        condition=None,
        test=Text("c"),
        then=Block(instructions=then, result=yields[0]),
        otherwise=Block(instructions=otherwise, result=yields[1]),
    )


def test_branches_do_not_interfere() -> None:
    before, a, b = alloc("before"), alloc("a"), alloc("b")
    choice = branch((a, kernel(before.var, a.var)), (b, kernel(X, b.var)), (X, X))
    found, _ = split(before, kernel(X, before.var), choice)
    assert together(found) == {frozenset(("before", "a"))}, "`before` is dead in the else-branch"


def test_what_only_the_second_branch_uses_is_dead_in_the_first() -> None:
    before, a, b = alloc("before"), alloc("a"), alloc("b")
    choice = branch((a, kernel(X, a.var)), (b, kernel(before.var, b.var)), (X, X))
    found, _ = split(before, kernel(X, before.var), choice)
    assert together(found) == {frozenset(("before", "b"))}
    assert len(found["before"].live) == 2, "two intervals: before the If, and in its else-branch"


def test_results_that_cross_an_if_live_on_behind_it_side_by_side() -> None:
    """Only one of the two exists at a time: that they are kept apart behind the If costs memory only."""
    a, b, c = alloc("a"), alloc("b"), alloc("c")
    choice = branch((a, kernel(X, a.var)), (b, kernel(X, b.var)), (a.var, b.var))
    found, _ = split(choice, c, kernel(choice.var, c.var))
    assert together(found) == {frozenset("ac"), frozenset("bc"), frozenset("ab")}
    assert found["a"].live[0][1] <= found["b"].live[0][0], "in the branches themselves they are apart"


def test_what_escapes_stays_unplanned() -> None:
    a, b, c, d = alloc("a"), alloc("b"), alloc("c"), alloc("d")
    kept = packed(Ownership.UNKNOWN, b.var)
    odd = NotUnderstood(var=Var("o", VOID), what="closure", reads=(c.var,))
    found, left = split(a, b, c, d, kernel(X, a.var), kept, odd, kernel(d.var), result=a.var)
    assert set(found) == {"d"}
    assert left["a"].reason == "it is returned"
    assert "packed function `f`" in left["b"].reason
    assert "closure" in left["c"].reason


def test_a_packed_function_known_to_return_its_argument_keeps_it_alive() -> None:
    a, b, c = alloc("a"), alloc("b"), alloc("c")
    same = packed(Ownership.ARGUMENT, a.var)
    found, left = split(a, kernel(X, a.var), same, b, kernel(X, b.var), c, kernel(same.var, c.var))
    assert not left
    assert frozenset("ab") in together(found)


def test_callees_are_looked_into() -> None:
    p, q = Var("p", X.type), Var("q", X.type)
    returns = function(name="returns", params=(p,), result=p)
    reads = function(kernel(q), name="reads", params=(q,), result=Text("nothing"))
    a, b, c = alloc("a"), alloc("b"), alloc("c")
    calls = [
        CallFunction(var=Var("r", VOID), name=name, arguments=(argument.var,))
        for name, argument in (("returns", a), ("reads", b), ("main", c))
    ]
    found, left = split(a, b, c, *calls, callees=(returns, reads))
    assert set(found) == {"b"}
    assert left["a"].reason == "in the function `returns`, it is returned"
    assert left["c"].reason == "the function `main` is not looked into"


def test_sizes_must_be_known_at_entry() -> None:
    cast, scalar, divided, nowhere = (
        alloc("a", K),
        alloc("b", symbol("s")),
        alloc("c", floordiv(K * 0 + 64, N)),
        None,
    )
    del nowhere
    unknown = AllocFresh(var=Var("d", VOID), shape=None, dtype=FLOAT)
    found, left = split(cast, scalar, divided, unknown)
    assert not found
    assert "match_cast" in left["a"].reason
    assert "no dimension of a parameter" in left["b"].reason
    assert "divides by `n`" in left["c"].reason
    assert left["d"].reason == "its shape is not known"


def test_a_size_that_can_come_out_negative_reserves_nothing_there() -> None:
    found, _ = split(alloc("a", N - 3), alloc("b", 2 * N))
    assert found["a"].size.evaluate({"n": 0}) == 0
    assert found["a"].size.evaluate({"n": 4}) == 64
    assert str(found["b"].size) == "64*((8*n + 63) // 64)"
