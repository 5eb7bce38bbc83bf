"""Assignments of tensors to arenas, judged by what a call takes at each moment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
import tvm

import symalloc
from benchmarks.random_modules import random_case
from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.timeline import Timeline
from symalloc.planner import plan_functions
from symalloc.planner.buffers.assignment import Assignment, Chosen, assign
from symalloc.planner.buffers.call_bytes import CallBytes, CallSteps
from symalloc.planner.buffers.candidates import Sizes, find_candidates, known_symbols
from symalloc.planner.grid import ExtentBounds, Grid, SizeTable, Values, sample_table, worst_shapes
from symalloc.planner.interference import live_sums
from symalloc.planner.memory_plan import Arena, Flavour, PlanOptions
from symalloc.planner.plan_functions import plan_program
from symalloc.planner.planned_program import written_function
from symalloc.program import ir
from symalloc.prover.prover import Prover
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered
from symalloc.report.quantities import human_bytes
from symalloc.size.expr import Expr, constant, symbol
from tests.models.planned import imported_case, ordinary_case, within_limit
from tests.planner.buffers.test_candidates import Calls, Found
from tests.planner.fewest_arenas import fewest
from tests.program.build import Body, param, program_of
from tests.scale import part, tries

N, M = symbol("n"), symbol("m")
WIDE, LARGE = "64*n", "4096*n"


def chain(*names: str) -> str:
    """Tensors of one size, each made from the one before."""
    return "; ".join(f"{one} = fresh {WIDE}; k {before} {one}" for before, one in pairwise(("x", *names)))


def arenas(found: Found) -> dict[int, set[str]]:
    groups: dict[int, set[str]] = {}
    for name, arena in found.arenas.items():
        groups.setdefault(arena, set()).add(name)
    return groups


class Nested(Calls):
    def nested(
        self, before: str, then: str, otherwise: str = "", behind: str = "", test: ir.Operand | None = None
    ) -> None:
        """An If with `before` on one side, and on the other a further If and `behind`."""

        def other() -> ir.Operand:
            self.sides(then, otherwise, test=test)
            return self.follow(behind)["x"]

        self.branch(lambda: self.follow(before)["x"], other, test=test or ir.TextLiteral("c"))


def test_a_result_lends_its_memory_until_it_is_made() -> None:
    one = Found(Calls(chain(*"abcr")), result="r")
    groups = arenas(one)
    assert len(groups) == 2, "two of a chain are live at once, the result one of them"
    lent = next(members for members in groups.values() if "r" in members)
    assert lent in ({"r", "b"}, {"r", "a"}) and one["r"].returned


def test_what_is_live_with_the_result_lies_elsewhere() -> None:
    one = Found(Calls(chain("a", "r")), result="r")
    assert set(one) == {"a"} and one.left["r"] == "it is returned"


def test_memory_of_unknown_size_parts_no_arenas() -> None:
    """Nobody knows how much a packed function makes: it is there with a plan and without."""
    steps = re.sub(r"k \w (\w)", r"\g<0>; \1\1 = gives \1", chain(*"abcd"))
    assert len(arenas(Found(Calls(f"{steps}; k aa bb d")))) == 1


def test_no_branch_takes_the_memory_of_the_other() -> None:
    body = Calls()
    large = f"large = fresh {LARGE}; k x large; other = fresh {LARGE}; k large other"
    body.sides(large, f"small = fresh {WIDE}; k x small")
    at = Found(body).arenas
    assert at["small"] not in (at["large"], at["other"])


def test_what_no_path_needs_still_counts_in_an_arena() -> None:
    """Two Ifs on one condition: the large tensor on the wrong side of the second is never live."""
    body = Nested(f"wide = fresh {WIDE}; k x wide")
    body.nested("", f"large = fresh {LARGE}; k x large", test=param("c", "n"))
    body.follow(f"small = fresh {WIDE}; k wide small")
    at = Found(body).arenas
    assert at["large"] not in (at["wide"], at["small"])


def test_an_arena_waits_for_what_no_path_needs() -> None:
    """It is there until then by the text, and `never` lies beside `long` in it."""
    body = Nested("; ".join(f"{name} = fresh {LARGE}; k x {name}" for name in ("early", "other", "long")))
    body.nested("", f"never = fresh {LARGE}; k x never", test=param("c", "n"))
    body.follow("k long x")
    held = bytes_of(body)
    assert not held.excess([[0], [1], [2], [3]]) and held.excess([[0, 3], [1], [2]]) > 1
    assert (held.height([2, 3]) == 2 * held.height([2])).all()


def bytes_of(body: Calls) -> CallBytes:
    """What a call holds, the buffers numbered in the order of the text."""
    program = program_of(body.function_of(body.params[0]))
    analyses = analyse(program)
    sizes = Sizes(known_symbols(analyses["main"].cfg), Prover())
    candidates = find_candidates(program, analyses, "main", sizes)
    steps = CallSteps(candidates, candidates.buffers)
    return CallBytes(steps, sample_table(steps.all_sizes, ExtentBounds()))


def test_an_if_that_begins_another_is_decided_first() -> None:
    """`late` is dead behind the inner If, in front of which the arena of `v` and `w` would be reserved."""
    body = Nested(f"early = fresh {WIDE}; k x early; late = fresh {LARGE}; k early late")
    small = "{0} = fresh 256*n; k x {0}"
    body.nested("k early x", "k late x", small.format("v"), small.format("w"))
    held = bytes_of(body)
    assert held.excess([[0], [1], [2, 3]]) > 0 and not held.excess([[0], [1], [2], [3]])


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_weights_that_each_call_moves_make_no_further_arenas(layers: int) -> None:
    """Weights of 12 MB beside rows and their products, and a result behind the largest of all: one arena ends
    before that is moved.  What lies in a strip ends at different steps, though it has the same bytes.
    """
    rows, products, body = "8192*n", "256*n*n", Calls()

    def made(name: str, size: int | str, *of: str) -> str:
        body.follow(f"{name} = fresh {size}; k {' '.join(of)} {name}")
        return name

    x = made("x0", rows, "x")
    for i in range(layers):
        wide = made(f"wide{i}", "24576*n", x, made(f"weight{i}", 12 << 20, "x"))
        value, key = made(f"value{i}", rows, wide), made(f"key{i}", rows, wide)
        scaled = made(f"scaled{i}", products, made(f"scores{i}", products, key))
        after = made(f"after{i}", rows, scaled, value)
        x = made(f"x{i + 1}", rows, after, made(f"down{i}", 4 << 20, "x"), x)
    normed = made("normed", rows, x)
    result = made("result", "32768*n", normed, made("head", 16 << 20, "x"))
    one = Found(body, result=result)
    assert len({one.arenas[name] for name, b in one.items() if not b.returned}) <= 3


def test_both_sides_of_an_if_share_what_lies_beside_the_result() -> None:
    """Each side needs three tensors at once, one of them in the result: the others share an arena."""
    body = Calls()
    left, right = (f"{chain(f'{m}0', f'{m}1')}; {m}2 = fresh {WIDE}; k {m}0 {m}1 {m}2" for m in "ab")
    body.follow(f"r = fresh {WIDE}; k one r", one=body.sides(left, right, "a2", "b2"))
    assert len(arenas(Found(body, result="r"))) == 2


def test_the_result_of_each_side_lends_its_memory() -> None:
    """Where a side ends, its result is there: in front of that the first tensor lies in its memory."""
    body = Calls()
    left, right = (chain(*(f"{m}{number}" for number in range(3))) for m in "ab")
    body.named["one"] = body.sides(left, right, "a2", "b2")
    one = Found(body, result="one")
    own = [members for members in arenas(one).values() if not any(one[n].returned for n in members)]
    assert own == [{"a1", "b1"}]


@pytest.mark.parametrize("name", ["llama_decode_concat", "branches", "branch_then_only"])
def test_all_results_lend_their_memory(name: str) -> None:
    """A decode step that returns its grown caches; sides of an If that end in results."""
    plans = plan_lowered(lower(ordinary_case(name).build(), "llvm")).plans
    for plan in plans.values():
        own = [arena for arena in plan.arenas if arena.result is None]
        assert len(own) <= (3 if name == "llama_decode_concat" else 1)
        assert len(own) < len(plan.arenas)


# -- as few arenas as there can be ---------------------------------------------------------------------------


FEWEST = {"onnx_attention": 4, "torch_cross_attention": 9, "model/cross_attention": 9, "model/nonzero": 4}


@pytest.mark.parametrize("name", part(FEWEST, 2))
def test_no_fewer_arenas_keep_the_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models with more than three: no way to share fewer keeps the limit, whatever the stackings."""
    chosen: list[Chosen] = []

    def recorded(*args: Any, **named: Any) -> Assignment:
        found = assign(*args, **named)
        chosen.extend(found.chosen)
        return found

    monkeypatch.setattr(plan_functions, "assign", recorded)
    (plan,) = plan_lowered(lowered_of(name)).plans.values()
    own = [arena for arena in plan.arenas if arena.result is None]
    assert len(own) == FEWEST[name]
    assert fewest(chosen[-1].held, 20_000) == (len(own), True)


@pytest.mark.parametrize("seed", [675, 997])
def test_the_limit_is_kept_where_it_is_too_much_work_to_share(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred tensors on both sides of Ifs, many of them sized by what data tell."""
    found: list[Assignment] = []

    def recorded(*args: Any, **named: Any) -> Assignment:
        found.append(assign(*args, **named))
        return found[-1]

    monkeypatch.setattr(plan_functions, "assign", recorded)
    plan_lowered(lower(random_case(seed).build(), "llvm"))
    assert all(one.excess() <= 1.0 for one in found)


@pytest.mark.parametrize("name", [*FEWEST, "model/llama_decode_masked", "model/bert"])
def test_each_further_arena_says_what_it_saves(name: str) -> None:
    """A call that holds one arena for it and the first takes so many bytes more, by its timeline."""
    planned = plan_lowered(lowered_of(name))
    ((function, plan),) = planned.plans.items()
    cfg, text = planned.analyses[function].cfg, " ".join(str(plan).split())

    def peak(arenas: Sequence[Arena], at: Mapping[str, int]) -> int:
        written = written_function(replace(plan, arenas=tuple(arenas)), cfg)
        return Timeline.of(replace(planned.program, functions={function: written}), function).peak(at) or 0

    own = [arena for arena in plan.arenas if arena.result is None]
    for arena in own[1:]:
        why = arena.further
        assert why is not None and why.reason in text
        if why.saves:
            both = (*own[0].placements, *arena.placements)
            most = max(one.evaluate(why.at) for one in live_sums([p.buffer for p in both]))
            rest = [one for one in plan.arenas if one not in (own[0], arena)]
            joined = peak([Arena.of(constant(most), both), *rest], why.at)
            assert why.saves == joined - peak(plan.arenas, why.at) and human_bytes(why.saves) in text
        else:
            assert arena.defined_by is not None, "its size is known too late"


def lowered_of(name: str) -> tvm.IRModule:
    model = name.removeprefix("model/")
    return lower((imported_case if model == name else ordinary_case)(model).build(), "llvm")


# -- storages ----------------------------------------------------------------------------------------------


STORAGES = PlanOptions(flavour="storages")


def test_a_chain_needs_two_storages() -> None:
    one = Found(Calls(chain(*"abcdefg")), options=STORAGES)
    assert sorted(map(sorted, arenas(one).values())) == [["a", "c", "e", "g"], ["b", "d", "f"]]


def test_a_small_one_does_not_take_the_only_place_of_a_large_one() -> None:
    steps = (
        f"small = fresh 64; k x small; large = fresh {LARGE}; k small large; last = fresh {LARGE}; k x last"
    )
    at = Found(Calls(steps), options=STORAGES).arenas
    assert at["large"] == at["last"]


def test_storages_that_take_more_than_the_floor_say_so() -> None:
    """Three of rising size, then a large one with each: no two of these can share, whatever the order."""
    body = Calls("c = fresh 256")
    for number, size in enumerate((64, 128, 192)):
        made = f"a{number} = fresh {size}*n; k x a{number}; b{number} = fresh {256 - size}*n"
        body.follow(f"{made}; k a{number} b{number}")
    body.follow("k x c")
    program = program_of(body.function_of(body.params[0]))
    (plan,) = plan_program(program, Prover(), options=STORAGES).values()
    assert all(p.offset == 0 for arena in plan.arenas for p in arena.placements)
    assert all(fallback.kind == "storages" and fallback.ratio > 1 for fallback in plan.fallbacks)


# -- shapes drawn afresh -----------------------------------------------------------------------------------


def straight(random: Random, sizes: Sequence[Expr]) -> ir.Program:
    """Tensors over two symbols, each made of others made before; two of them are returned."""
    made: list[ir.Var] = []
    body = Body(param("x", "n"), param("y", "m"))
    for number in range(random.randint(14, 22)):
        one = body.fresh(random.choice(sizes), name=f"t{number}")
        read = random.sample(made[-5:], min(len(made), random.randint(1, 2)))
        body.call("k", *body.params, *read, one)
        made.append(one)
    return body.program(body.tuple(made[-1], random.choice(made[2:])))


@pytest.mark.parametrize(("flavour", "most"), [("arena", 2), ("storages", 6)])
@pytest.mark.parametrize("sizes", [(64 * N, 64 * M, 64 * N * N, 64 * M * M), (64 * N, 1360 * N, 80 * N * N)])
def test_random_calls_keep_the_limit_at_shapes_drawn_afresh(
    flavour: Flavour, most: float, sizes: Sequence[Expr]
) -> None:
    random = Random(1)
    for seed in range(tries(20, 300)):
        program = straight(Random(seed), sizes)
        analyses = analyse(program)
        known = Sizes(known_symbols(analyses["main"].cfg), Prover())
        storages = flavour == "storages"
        candidates = find_candidates(program, analyses, "main", known, storages=storages)
        found = assign(candidates, ExtentBounds(), PlanOptions(flavour=flavour))
        steps = CallSteps(candidates, candidates.buffers)
        number = {buffer.var: index for index, buffer in enumerate(candidates.buffers)}
        groups = [[number[b.var] for b in arena] for arena in (*found.arenas, *([b] for b in found.lone))]
        groups = [sorted(g, key=lambda i: not candidates.buffers[i].returned) for g in groups]
        points = [(round(2 ** random.uniform(0, 12)), round(2 ** random.uniform(0, 12))) for _ in range(300)]
        table = SizeTable.at(Grid(names=("m", "n"), points=tuple(points)), steps.all_sizes)
        assert CallBytes(steps, table).excess(groups) <= most, seed
        everything = range(len(candidates.buffers))
        moments = steps.moments(everything)
        assert (moments.counts[moments.at] == steps.counts(everything)).all(), seed


@pytest.mark.parametrize("ratio", [(1.4,), (1.4, 3.0)])
def test_a_ridge_that_no_start_lies_on_is_found(ratio: tuple[float, ...]) -> None:
    """The excess falls by a factor for every tenth that a symbol lies off the ratio to the first."""
    names = tuple("abc")[: len(ratio) + 1]

    def excesses(grid: Grid) -> tuple[Grid, Values]:
        extents = np.maximum(np.array(grid.points, dtype=np.float64), 1.0)
        off = np.abs(np.log(extents[:, 1:] / extents[:, :1]) - np.log(ratio)).sum(axis=1)
        return grid, 2 * np.exp(-2 * off)

    assert worst_shapes(names, ExtentBounds(), excesses, 1000)


@pytest.mark.parametrize(
    ("seed", "sizes"),
    [
        (132, {"n": 300, "k": 5, "q": 40_000}),
        (180, {"n": 300, "m": 200, "q": 40_000}),
        (100, {"n": 654, "m": 226, "q": 654 * 226}),
        (1203, {"m": 2, "k": 3, "q": 40_000}),
    ],
)
def test_a_size_that_data_tells_may_be_a_product_of_others(seed: int, sizes: Mapping[str, int]) -> None:
    """What R.unique finds in a matrix may be as many values as that has."""
    found = symalloc.plan(random_case(seed).build(), target="llvm").at(sizes)
    assert found.call is not None and found.call_unplanned is not None
    assert found.call <= within_limit(found.call_unplanned)


def test_a_call_takes_no_more_also_where_packed_functions_take_memory_elsewhere() -> None:
    """An allocator that counts does not see what R.unique makes."""
    outcome = symalloc.plan(random_case(1821).build(), target="llvm").report.of("main").outcome
    for count in (1, 2_000, 60_000):
        at = {"n": 300, "m": 200, "q": count}
        for keep in (lambda one: True, lambda one: not one.packed):
            ours, unplanned = (one.only(keep).peak(at) for one in (outcome.planned, outcome.unplanned))
            assert ours is not None and unplanned is not None and ours <= within_limit(unplanned)


def test_nothing_is_looked_for_without_symbols() -> None:
    assert worst_shapes((), ExtentBounds(), lambda _: None, 10) == []
