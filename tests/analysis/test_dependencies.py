"""Dependency graphs, and the certificate of concurrency against brute force over orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from random import Random

import pytest

from symalloc.analysis.dependencies import (
    Collision,
    DependencyGraph,
    EdgeKind,
    HappensBefore,
    Touch,
    dependency_graph,
)
from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.regions import RegionKind
from symalloc.planner.check.validate import TensorPlace, fences
from symalloc.program.ir import Operand, Var
from symalloc.program.types import OpaqueType
from symalloc.prover.domain import Domain
from tests.planner.test_orders import random_order
from tests.program.build import KERNELS, NOTHING, Body, param, program_of
from tests.scale import tries


def graph_of(body: Body, result: Operand = NOTHING) -> DependencyGraph:
    return dependency_graph(analyse(body.program(result))["main"])


def edges(graph: DependencyGraph) -> set[tuple[int, int, str]]:
    return {(edge.source, edge.target, edge.kind.value) for edge in graph.edges}


def test_what_is_written_anew_is_no_longer_read_from_before() -> None:
    body = Body()
    body.follow("s = storage n; a = tensor s n; fill a; read a; fill a; read a")
    found = {(0, 1, "data"), (0, 2, "memory"), (1, 2, "memory"), (2, 3, "data")}
    assert edges(graph_of(body)) == found


LOG = "_ = packed mylib.log x ownership=FRESH kind=OPAQUE pure=IMPURE"


def test_values_symbols_checks_and_effects_are_waited_for() -> None:
    body = Body(param("x", "n"))
    steps = "y = packed mylib.unique x ownership=FRESH; z = cast y m defines=m; s = storage m; t = tensor s m"
    # the size of t is known behind the first
    t = body.follow(f"{steps}; fill t; {LOG}; {LOG}; _ = check n>=2; add z t t")["t"]
    found = edges(graph_of(body, t))
    assert found >= {(0, 1, "data"), (2, 3, "effect"), (4, 5, "effect"), (1, 5, "data"), (0, 5, "data")}
    assert (0, 2, "memory") in found  # it may write
    assert not {pair[:2] for pair in found} & {(1, 2)}


def test_a_call_has_the_effects_of_what_it_calls() -> None:
    inner = Body(param("x", "n"), name="inner")
    inner.follow(LOG)
    body = Body(param("x", "n"))
    for _ in range(2):
        body.function("inner", body.params[0], kind=OpaqueType())
    graph = dependency_graph(analyse(body.program(NOTHING, inner.finish()))["main"])
    assert (0, 1, "effect") in edges(graph)


@pytest.mark.parametrize(
    ("called", "waits"), [("mylib.log", True), ("tvm.contrib.random.random_fill", True), ("", False)]
)
def test_a_kernel_has_the_effects_of_what_it_calls(called: str, waits: bool) -> None:
    body = Body(param("x", "n"))
    for _ in range(2):
        body.call("read", body.params[0])
    kernels = {"read": replace(KERNELS["read"], others=(called,) if called else ())}
    graph = dependency_graph(analyse(program_of(body.finish(NOTHING), kernels=kernels))["main"])
    assert ((0, 1, "effect") in edges(graph)) is waits


def first(relation: HappensBefore, one: int, other: int) -> Collision | None:
    return next(iter(relation.collisions(one, other)), None)


# -- lanes -------------------------------------------------------------------------------------------------


def test_a_lane_is_a_device() -> None:
    body = Body()
    tensors = (
        "s = storage 3*n; o = storage n device=1; a = tensor s n; b = tensor s n; far = tensor o n device=1"
    )
    made = body.follow(f"{tensors}; fill a; copy a far; fill b; read b")
    graph = graph_of(body, made["far"])
    one, two = (next(r.number for r in graph.points_to.regions if r.var is made[v]) for v in "ab")
    assert [node.device for node in graph.nodes] == [0, 1, 0, 0]
    assert not HappensBefore(graph=graph, order="total").collisions(one, two)
    for order in ("lanes", "dag"):
        relation = HappensBefore(graph=graph, order=order)  # type: ignore[arg-type]
        found = first(relation, one, two)
        assert found is not None and [t.dispatch for t in found[2:]] == [0, 2, 1]
        assert relation.showing(found) == (0, 2, 1, 3)
    fenced = graph.with_edges(fences(graph, dict.fromkeys((one, two), TensorPlace(0)), Domain()))
    assert [(e.source, e.target) for e in fenced.edges if e.kind is EdgeKind.FENCE] == [(1, 2)]
    assert not HappensBefore(graph=fenced, order="dag").collisions(one, two)


# -- against brute force -----------------------------------------------------------------------------------


def random_body(random: Random, count: int) -> tuple[Body, Operand, list[Var]]:
    """A program of kernels on tensors of a storage or two, some updated in place, some inside an If; which
    storage it is may be up to an If, too.
    """
    body = Body(param("x", "n"))
    storages = [body.storage("64*n")]
    if random.random() < 0.4:
        other = body.storage("64*n")
        storages.append(body.branch(lambda: storages[0], lambda: other))
    made: list[Var] = []

    def step() -> Var:
        a = random.choice([body.params[0], *made])
        if made and random.random() < 0.2:
            body.call(random.choice(["update", "read"]), random.choice(made))
        t = body.tensor(random.choice(storages), "n", name=f"t{body.count}")
        body.call("add", a, random.choice([body.params[0], *made]), t)
        return t

    for _ in range(count):
        if random.random() < 0.15:
            made.append(body.branch(step, step))
        else:
            made.append(step())
    return body, random.choice(made), made


def sharing(graph: DependencyGraph) -> list[tuple[int, int]]:
    regions = graph.points_to.regions
    tensors = [n for n in graph.touches if regions[n].kind is RegionKind.TENSOR]
    return [pair for pair in combinations(tensors, 2) if len({regions[n].root for n in pair}) == 1]


def orders(graph: DependencyGraph) -> Iterator[tuple[int, ...]]:
    """All topological orders."""

    def further(done: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(done) == len(graph.nodes):
            yield done
        for n, waits in enumerate(graph.predecessors):
            if n not in done and waits <= {*done}:
                yield from further((*done, n))

    return further(())


def loses(graph: DependencyGraph, order: Sequence[int], pair: tuple[int, int]) -> bool:
    """True if a run in `order` reads one memory of `pair` after the other was written over it.

    Runs points one by one, on each way through the Ifs: what shares nothing with the relation.  A kernel
    that reads the one and writes the other loses what it has not read yet.
    """
    cfg = graph.points_to.cfg
    branches = sorted(cfg.joins)
    by_point: dict[int, list[tuple[int, Touch]]] = {}
    for number in pair:
        for t in graph.touches.get(number, ()):
            by_point.setdefault(t.point, []).append((number, t))
    steps = [p for n in order for p in range(graph.spans[n][0], graph.spans[n][1] + 1)]
    for way in product((True, False), repeat=len(branches)):
        taken = dict(zip(branches, way, strict=True))
        holder: int | None = None  # whose content lies there
        filled: set[int] = set()
        for point in (*steps, cfg.exit):
            if any(taken[branch] is not then for branch, then in cfg.paths[point]):
                continue
            here = [(n, t) for n, t in by_point.get(point, ()) if all(taken[b] is side for b, side in t.path)]
            for number, t in here:
                at_once = any(other != number and u.writes for other, u in here)
                if not t.writes and number in filled and (holder != number or at_once):
                    return True
            for number, t in here:
                if t.writes:
                    holder = number
                    filled.add(number)
    return False


@pytest.mark.parametrize("seed", range(tries(60, 2000)))
def test_collisions_against_all_orders(seed: int) -> None:
    random = Random(seed)
    body, result, _ = random_body(random, random.randint(2, 5))
    graph = graph_of(body, result)
    relation = HappensBefore(graph=graph, order="dag")
    every = list(orders(graph))
    for pair in sharing(graph):
        found = first(relation, *pair)
        lost = any(loses(graph, order, pair) for order in every)
        assert lost == (found is not None and not found.at_once), pair
        if found is not None and found.at_once:  # an If has all that it needs inside
            writer, reader = found.writer.dispatch, found.reader.dispatch
            assert not relation.ahead[reader] >> writer & 1, pair
            assert not relation.ahead[writer] >> reader & 1, pair
        elif found is not None:
            assert loses(graph, relation.showing(found), pair), (pair, found)
            fenced = graph.with_edges(fences(graph, dict.fromkeys(pair, TensorPlace(0)), Domain()))
            shown = first(HappensBefore(graph=fenced, order="dag"), *pair)
            assert shown is None or loses(graph, range(len(graph.nodes)), pair)


@pytest.mark.parametrize("seed", range(tries(4, 100)))
def test_collisions_against_random_orders(seed: int) -> None:
    random = Random(seed)
    body, result, _ = random_body(random, 30)
    graph = graph_of(body, result)
    relation = HappensBefore(graph=graph, order="dag")
    some = [random_order(graph, random) for _ in range(3)]
    pairs = sharing(graph)
    for pair in random.sample(pairs, min(40, len(pairs))):
        found = first(relation, *pair)
        if found is None or found.at_once:
            assert not any(loses(graph, order, pair) for order in some), pair
        else:
            assert loses(graph, relation.showing(found), pair), (pair, found)
