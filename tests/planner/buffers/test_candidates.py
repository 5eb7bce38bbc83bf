"""What can be planned of small programs, written as the extractor makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
from symalloc.program.types import OpaqueType, ScalarType, ShapeType, Type
from symalloc.prover.prover import Prover
from symalloc.size.choice import maximum, minimum, select
from symalloc.size.condition import lt
from symalloc.size.expr import Expr, floordiv, mod, round_up, symbol
from tests.program.build import U8, Body, param, program_of, tensor_of
from tests.scale import tries

N, S = symbol("n"), symbol("s")
VOID = OpaqueType()
ARENA = PlanOptions()


class Calls(Body):
    """A function of x, of n bytes; `k` is of a cast and `s` of a scalar.  The kernel `k` may do anything."""

    def __init__(self, steps: str = "", *params: ir.Var, name: str = "main") -> None:
        super().__init__(*(params or (param("x", "n"),)), name=name)
        self.follow(steps)

    def unknown(self, *arguments: ir.Var) -> ir.Var:
        return self.packed("f", *arguments, kind=VOID, pure=False)

    def gives(self, *arguments: ir.Var) -> ir.Var:
        return self.packed("f", *arguments, kind=VOID, ownership=ir.Ownership.FRESH, pure=False)

    def captures(self, name: str, *arguments: ir.Var, ownership: ir.Ownership = ir.Ownership.FRESH) -> ir.Var:
        more: Any = {"kind": VOID, "ownership": ownership, "pure": False, "may_capture": True}
        return self.packed(name, *arguments, **more)

    def odd(self, value: ir.Var) -> ir.Var:
        return self.emit(ir.NotUnderstood(var=self.var(VOID), what="closure", reads=(value,)))

    def of(self, function: str, *arguments: ir.Var) -> ir.Var:
        return self.function(function, *arguments, kind=tensor_of("n"))

    def shapeless(self, inexact: str | None = None) -> ir.Var:
        return self.emit(ir.AllocFresh(var=self.var(VOID), shape=None, dtype=U8, inexact=inexact))

    def function_of(self, result: ir.Operand) -> ir.Function:
        origins = {"n": ir.Origin.DIMENSION, "k": ir.Origin.CAST, "s": ir.Origin.SCALAR}
        return self.finish(result, symbols=origins)


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
    """Buffers by name, and the number of the arena of each; `left` has the reasons of the others."""

    def __init__(
        self, body: Calls, *callees: ir.Function, result: str = "x", options: PlanOptions = ARENA
    ) -> None:
        main = body.function_of(body.named.get(result, body.params[0]))
        arenas, left = found_in(program_of(main, *callees), options)
        super().__init__({b.name: b for arena in arenas for b in arena})
        self.arenas = {b.name: number for number, arena in enumerate(arenas) for b in arena}
        self.left = {u.name: u.reason for u in left}

    @property
    def together(self) -> set[frozenset[str]]:
        names, pairs = list(self), interference(tuple(self.values()))
        return {frozenset((names[a], names[b])) for a, others in enumerate(pairs) for b in others}


def found(steps: str, result: str = "x") -> Found:
    return Found(Calls(steps), result=result)


def test_many_undecided_ifs_lose_precision_and_nothing_else() -> None:
    def ifs(count: int) -> set[frozenset[str]]:
        body = Calls()
        sides = (
            (f"a{i} = fresh 4*n; k x a{i}", f"b{i} = fresh 4*n; k x b{i}", f"a{i}", f"b{i}")
            for i in range(count)
        )
        body.call("k", *(body.sides(*side) for side in sides))
        return Found(body).together

    many, few = ifs(8), ifs(3)
    assert all(frozenset((f"a{i}", f"b{j}")) in many for i in range(8) for j in range(8) if i != j)
    assert not any(frozenset((f"a{i}", f"b{i}")) in few for i in range(3))


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ("k x a; out = fresh 4*n; r = CALL; k out", {"a", "out"}),
        ("k x a; out = fresh 4*n; r = CALL; k out; k r", set()),
        ("k x a; out = fresh 4*n; k x out; r = CALL; k out", set()),  # all is written: it may keep it
    ],
)
def test_a_library_function_whose_result_nobody_uses_keeps_nothing(steps: str, kept: set[str]) -> None:
    body = Calls()
    call = "captures f a out ownership=UNKNOWN"
    body.follow(f"a = fresh 4*n; {steps.replace('CALL', call)}")
    assert Found(body).keys() == kept


def test_what_escapes_stays_unplanned() -> None:
    made = "; ".join(f"{name} = fresh 4*n" for name in "abcd")
    left = found(f"{made}; k x a b; kept = unknown b; other = odd c; k d", result="a")
    assert set(left) == {"d"}
    assert left.left["a"] == "it is returned"
    assert "packed function `f`" in left.left["b"]
    assert "closure" in left.left["c"]


def test_callees_are_looked_into() -> None:
    callees = (
        Calls("", param("p", "n"), name="returns"),
        Calls("k q", param("q", "n"), name="reads"),
        Calls("kept = unknown r", param("r", "n"), name="keeps"),
    )
    made = "; ".join(f"{name} = fresh 4*n" for name in "abc")
    body = Calls(f"{made}; again = of returns a; _ = of reads b; _ = of keeps c; d = fresh 4*n; k again d")
    text = ir.TextLiteral("nothing")
    results = (callees[0].params[0], text, text)
    one = Found(body, *(c.function_of(r) for c, r in zip(callees, results, strict=True)))
    assert set(one) == {"a", "b", "d"}
    assert one.left["c"] == "the function `keeps` may keep it"
    assert frozenset("ad") in one.together, "what the callee returns is the argument"


def test_recursive_functions_are_left_alone_and_said_to_be() -> None:
    one = found("a = fresh 4*n; k x a; _ = of main a")
    assert not one
    assert "calls itself" in one.left["a"]


def test_a_packed_function_that_gives_nothing_back_may_keep_what_it_is_given() -> None:
    made = "a = fresh 4*n; k x a; b = fresh 4*n; k x b"
    one = found(f"{made}; r = captures watch a; c = fresh 4*n; q = captures library b c; k c")
    assert set(one) == {"b", "c"}, "a library function is given its result's memory, which is still empty"
    assert one.left["a"] == "the packed function `watch` may keep or return it"


def test_memory_of_two_devices_and_scopes_is_kept_apart_in_order() -> None:
    one = found("a = fresh 4*n device=1; k x a; b = fresh 4*n; k a b; c = fresh 4*n device=1; k b c")
    assert [(b.id, b.name, b.device) for b in one.values()] == [(0, "b", 0), (1, "a", 1), (2, "c", 1)]


def test_sizes_must_be_known() -> None:
    inexact = "`n / 2.5` is no integer"
    body = Calls(
        "b = fresh s; c = fresh n*2**48; d = shapeless; f = fresh max(n,2**64)"
    )  # no guard lets f pass
    body.follow("e = shapeless why; k b c d e f", why=inexact)
    one = Found(body)
    assert not one
    assert "which no parameter and no match_cast binds" in one.left["b"]
    assert all("beyond what can be allocated" in one.left[name] for name in "cf")
    assert one.left["d"] == "its shape is not known"
    assert one.left["e"] == f"its shape is not known: {inexact}"


def test_choices_that_are_never_taken_are_left_out_of_sizes() -> None:
    """How TVM counts a place from the end."""
    half = select(lt(N, 0), floordiv(N, 2) + N, floordiv(N, 2))
    body = Calls()
    body.call("k", body.fresh(minimum(maximum(half, 0), N) - minimum(N, 0), name="a"))
    assert Found(body)["a"].size == round_up(floordiv(N, 2), 64)


extents = st.integers(-6, 9)


@given(st.sampled_from([floordiv, mod]), st.sampled_from([N, S, N - 4, N * S, N - S]), extents, extents)
@settings(max_examples=tries(40, 400))
def test_divisors_that_may_be_zero_cost_no_place(
    divide: Callable[[Expr, Expr], Expr], divisor: Expr, n: int, s: int
) -> None:
    """A scalar parameter `s` may be negative.  What is set aside is right wherever the shape is defined."""
    extent, scalar = divide(N * 3 + 7, divisor), ir.Var("s", ScalarType(dtype=None, value=S))
    body = Calls("", param("x", "n"), scalar)
    body.call("k", body.fresh(extent, name="a"))
    at = {"n": abs(n), "s": s}
    room = Found(body)["a"].size.evaluate(at)
    assert room >= 0
    assert room % 64 == 0
    if divisor.evaluate(at) != 0:
        assert 0 <= room - max(extent.evaluate(at), 0) < 64


CAST = "known = cast x k defines=k"


def test_sizes_that_come_later_get_an_arena_behind_the_cast() -> None:
    body = Calls(f"a = fresh 8*n; k x a; {CAST}; b = fresh 4*k; k known b; c = fresh 4*n; k b c")
    one = Found(body)
    assert not one.left
    assert one.keys() == {"a", "b", "c"}
    assert (one["a"].defined_by, one["b"].defined_by) == (None, body.named["known"])


def test_what_crosses_a_cast_stays_alone_where_it_would_hold_a_large_arena() -> None:
    before = f"large = fresh 2048*n; k x large; small = fresh 4*n; k large small; {CAST}"
    body = Calls(f"{before}; late = fresh 2048*k; k known late; later = fresh 4*n; k small late later")
    one, known = Found(body), body.named["known"]
    assert not one.left
    late = {name: b.defined_by for name, b in one.items()}
    assert late == {"large": None, "small": None, "late": known, "later": None}
    assert one.arenas["small"] != one.arenas["large"]


def test_a_size_that_comes_inside_a_branch_gets_an_arena_there() -> None:
    body = Calls("outside = fresh 4*n; k x outside")
    body.sides(f"{CAST}; inside = fresh 4*k; k known inside", "")
    one = Found(body)
    assert not one.left
    late = {name: b.defined_by for name, b in one.items()}
    assert late == {"inside": body.named["known"], "outside": None}
    assert one.arenas["inside"] != one.arenas["outside"]


def test_a_size_that_comes_in_several_branches_is_left_alone() -> None:
    """It is another one in each, and what one binds the other does not see."""
    body = Calls()
    body.sides(f"{CAST}; a = fresh 4*k; k a", "other = cast x k; b = fresh 4*k; k b")
    one = Found(body)
    assert not one
    reason = "its size depends on `k`, which gets its value from `known` or in another branch"
    assert one.left == {"a": reason, "b": reason}


@pytest.mark.parametrize(
    ("before", "behind", "arenas"),
    [
        # it cannot hold what is taken in the branch, and is held for no more than what lives there
        ("early = fresh 4*n; k x early", "late = fresh 4*n; later = fresh 4*n; k early late later", 2),
        (
            "early = fresh 4*n; other = fresh 4*n; k x early other",
            "k early other",
            1,
        ),  # all of it lives beside
    ],
)
def test_no_arena_is_held_for_all_while_memory_is_taken_that_it_cannot_hold(
    before: str, behind: str, arenas: int
) -> None:
    """Of 4 * k bytes in one branch of an If, where no plan places them."""
    body = Calls(before)
    body.sides(f"{CAST}; b = fresh 4*k; k known b", "_ = cast x k defines=k")
    body.follow(behind)
    one = Found(body)
    assert one.left.keys() == {"b"}
    assert len({*one.arenas.values()}) == arenas


SCALAR = ScalarType(value=S, dtype=None)


@pytest.mark.parametrize("kind", [SCALAR, ShapeType(values=(S,))])
def test_extents_that_nothing_checks_may_be_negative_and_then_reserve_nothing(kind: Type) -> None:
    one = Found(Calls("a = fresh 4*s; k x a", param("x", "n"), ir.Var("given", kind)))
    assert not one.left
    assert [one["a"].size.evaluate({"s": s}) for s in (-65, -1, 0, 1)] == [0, 0, 0, 64]


def test_what_a_computed_scalar_sizes_is_left_alone() -> None:
    body = Calls()
    body.packed("f", kind=SCALAR, ownership=ir.Ownership.FRESH, pure=False)
    body.follow("a = fresh 4*s; k x a")
    one = Found(body)
    assert not one
    wanted = "its size depends on `s`, which `v1` computes as a scalar: only a match_cast makes it a size"
    assert one.left == {"a": wanted}
