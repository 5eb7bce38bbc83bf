"""Right plans with one thing made wrong: each is refused, by the name of what is wrong and where it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from symalloc.planner.check.validate import PlanFault, PlanRefusedError, validate
from symalloc.planner.memory_plan import Arena, Placement, Plan
from symalloc.planner.offsets import assemble
from symalloc.planner.overflow_guards import guards
from symalloc.planner.stack import Stacking
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.choice import Select, maximum, select
from symalloc.size.condition import gt, le
from symalloc.size.expr import Expr, constant, floordiv, symbol
from tests.planner.brute_stackings import buffer, chosen_by

N, M = symbol("n"), symbol("m")
PROVER, DOMAIN = Prover(), Domain()


BUFFERS = (
    buffer(0, 64 * N, (0, 3), name="a"),
    buffer(1, 128 * M, (2, 5), name="b"),
    buffer(2, 64 * N, (4, 6), name="c"),
    buffer(3, 4096, (0, 2), (5, 6), name="d"),
)


def planned(*orders: tuple[int, ...]) -> Plan:
    """The plan that stacks by the first order up to n = 64 and by the second above; one order: always."""
    first, *others = (assemble(BUFFERS, Stacking.of(order, BUFFERS), DOMAIN) for order in orders)
    arena = chosen_by(le(N, 64), first, others[0]) if others else first
    return Plan(function="f", arenas=(arena,), guards=guards([arena], DOMAIN, PROVER))


ONE = planned((3, 0, 2, 1))  # d at the start, a and c above it, b on top
TWO = planned((0, 1, 2, 3), (3, 2, 1, 0))


def moved(plan: Plan, name: str, change: Callable[[Placement], Placement]) -> Plan:
    (arena,) = plan.arenas
    placements = tuple(change(p) if p.buffer.name == name else p for p in arena.placements)
    return replace(plan, arenas=(replace(arena, placements=placements),))


def at(plan: Plan, name: str, offset: Callable[[Expr], Expr]) -> Plan:
    return moved(plan, name, lambda p: replace(p, offset=offset(p.offset)))


def changed(plan: Plan, name: str, **fields: object) -> Plan:
    return moved(plan, name, lambda p: replace(p, buffer=replace(p.buffer, **fields)))  # type: ignore[arg-type]


def sized(plan: Plan, change: Callable[[Expr], Expr]) -> Plan:
    (arena,) = plan.arenas
    return replace(plan, arenas=(replace(arena, size=change(arena.size)),))


def sides(offset: Expr) -> tuple[Expr, Expr]:
    """Both sides of an offset that is a choice between regimes."""
    atom = offset.as_atom
    assert isinstance(atom, Select)
    return atom.then, atom.otherwise


def swapped_branches(offset: Expr) -> Expr:
    then, otherwise = sides(offset)
    return select(le(N, 64), otherwise, then)


def off_by_one(offset: Expr) -> Expr:
    """The choice made one step too late: at n = 65 by the other stacking than the rest."""
    return select(le(N, 65), *sides(offset))


def with_hole(offset: Expr) -> Expr:
    """Nothing said about shapes above n = 64: the offset falls to zero there."""
    return select(le(N, 64), sides(offset)[0], 0)


OVERLAP = "they overlap while both are live"
SWAPPED = at(at(ONE, "b", lambda _: constant(4096)), "a", lambda _: 4096 + 128 * M)
SHORT = sized(TWO, lambda s: select(le(N, 64), s, s - 64))
FAULTS: list[tuple[str, Plan, str, set[str]]] = [
    ("swapped order", SWAPPED, OVERLAP, {"b", "c"}),
    ("64 bytes too low", at(ONE, "b", lambda o: o - 64), OVERLAP, {"a", "b"}),
    ("64 bytes too high", at(ONE, "b", lambda o: o + 64), "it ends behind its arena", {"b"}),
    ("a byte off", at(ONE, "a", lambda o: o + 1), "its offset is no multiple of 64", {"a"}),
    ("before the start", at(ONE, "d", lambda _: constant(-64)), "it starts before its arena", {"d"}),
    ("arena shrunk", sized(ONE, lambda s: s - 64), "it ends behind its arena", {"b"}),
    ("arena of one term", sized(ONE, lambda _: 4096 + 64 * N), "it ends behind its arena", {"b"}),
    ("lives longer", changed(ONE, "a", live=((0, 6),)), OVERLAP, {"a", "c"}),
    ("lives once more", changed(ONE, "a", live=((0, 3), (5, 6))), OVERLAP, {"a", "c"}),
    ("larger", changed(ONE, "a", size=64 * N + 64), OVERLAP, {"a", "b"}),
    ("holds more", changed(ONE, "a", nbytes=64 * N + 1), "it holds more bytes than are set aside", {"a"}),
    ("size can be negative", changed(ONE, "a", size=64 * N - 64), "its size can be negative", {"a"}),
    ("wider alignment", changed(ONE, "b", alignment=128), "its offset is no multiple of 128", {"b"}),
    ("regimes swapped for one", at(TWO, "b", swapped_branches), OVERLAP, {"b", "c"}),
    ("regimes that part elsewhere", at(TWO, "a", off_by_one), OVERLAP, {"a", "d"}),
    ("regimes with a hole", at(TWO, "b", with_hole), OVERLAP, {"b", "c"}),
    ("arena short in one regime", SHORT, "it ends behind its arena", {"a"}),
]


def faults(plan: Plan) -> list[PlanFault]:
    return list(validate(plan, DOMAIN, PROVER))


def broken_at(plan: Plan, fault: PlanFault) -> bool:
    """Whether `fault` shows at its binding, by arithmetic alone."""
    assert fault.binding is not None
    at = {"n": 0, "m": 0, **fault.binding}
    (arena,) = plan.arenas
    spans = {
        p.buffer.name: (p.offset.evaluate(at), p.offset.evaluate(at) + p.buffer.size.evaluate(at))
        for p in arena.placements
    }
    mine = [spans[name] for name in fault.buffers]
    if len(mine) == 2:
        return max(mine[0][0], mine[1][0]) < min(mine[0][1], mine[1][1])
    ((begin, end),) = mine
    (buffer,) = (p.buffer for p in arena.placements if p.buffer.name in fault.buffers)
    return (
        begin < 0
        or end > arena.size.evaluate(at)
        or begin % buffer.alignment != 0
        or end < begin
        or buffer.nbytes.evaluate(at) > buffer.size.evaluate(at)
    )


@pytest.mark.parametrize("plan", [ONE, TWO], ids=["one stacking", "two regimes"])
def test_the_plans_are_right_before_anything_is_planted(plan: Plan) -> None:
    assert faults(plan) == []


@pytest.mark.parametrize(("plan", "problem", "names"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_planted_fault_is_refused_with_a_binding_that_shows_it(
    plan: Plan, problem: str, names: set[str]
) -> None:
    found = faults(plan)
    assert any(f.problem == problem and set(f.buffers) == names for f in found), [str(f) for f in found]
    for fault in found:
        if "64 bits" not in fault.problem:
            assert broken_at(plan, fault), str(fault)


def test_without_its_guard_a_plan_is_refused_for_the_shapes_past_64_bits() -> None:
    (first, *_) = faults(replace(ONE, guards=()))
    assert "can leave 64 bits" in first.problem
    assert first.binding is not None
    assert (
        ONE.arenas[0].size.evaluate({"n": 0, "m": 0, **first.binding}) > 2**63 - 1 or "64*n" in first.problem
    )


def test_a_choice_by_a_value_past_64_bits_is_refused() -> None:
    wide = at(ONE, "d", lambda _: select(gt(N * N * N * M * M * M * M, 2**62), 0, constant(0) + 0))
    assert faults(wide) == [], "both sides are equal: no choice is left"
    wide = sized(ONE, lambda s: select(gt(N**4 * M**4, 2**62), s, s + 64))
    assert any("n**4" in f.problem and "64 bits" in f.problem for f in faults(wide))


def test_a_divisor_that_may_be_zero_is_refused() -> None:
    wrong = sized(ONE, lambda s: s + 64 * floordiv(N, M))
    found = [f for f in faults(wrong) if "divides" in f.problem]
    assert [f.problem for f in found] == ["it divides by `m`, which may be less than 1"]
    assert found[0].binding == {"m": 0}


def test_a_harmless_change_is_no_fault() -> None:
    room = sized(ONE, lambda s: maximum(s, 0) + 256)
    assert faults(replace(room, guards=guards(room.arenas, DOMAIN, PROVER))) == []


def test_every_pair_of_a_class_is_named() -> None:
    """Buffers of equal offset and size are judged once; all pairs that are wrong are named."""
    layers = [Placement(buffer(i, 64 * N, (i, i + 2)), constant(0)) for i in range(4)]
    whole = Plan(function="f", arenas=(Arena.of(64 * N, layers),))
    found = validate(whole, Domain(upper={"n": 4096}), PROVER)
    assert [f.buffers for f in found] == [("t0", "t1"), ("t1", "t2"), ("t2", "t3")]


def test_a_refusal_names_a_fault_that_has_a_binding_first() -> None:
    unsure = PlanFault(problem="it is hard", buffers=("a",), constraint=le(N, 4), binding=None)
    sure = PlanFault(problem="it is wrong", buffers=("b",), constraint=le(N, 4), binding={"n": 5})
    with pytest.raises(PlanRefusedError, match=r"refused: `b`: it is wrong at n = 5 \(and 1 more\)"):
        raise PlanRefusedError.of("f", (unsure, sure))
