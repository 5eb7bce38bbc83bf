"""Lifetimes path by path: read all at once, they are those of each path analysed by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse, analyse_variant
from symalloc.analysis.paths import Sides
from symalloc.analysis.plain_paths import plain_paths
from symalloc.planner.buffers import path_lifetimes as module
from symalloc.planner.buffers.path_lifetimes import PathLifetimes, path_lifetimes
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.ir import AllocFresh, CallFunction, Program, Var
from tests.analysis.test_plain_function import fresh, plain_programs, without_short_cut
from tests.planner.random_programs import random_program
from tests.program.build import NOTHING, Body, param
from tests.scale import tries


def all_general(cfg: ControlFlowGraph, program: Program, *, most: int) -> list[tuple[Sides, None]] | None:
    found = plain_paths(cfg, program, most=most)
    return None if found is None else [(sides, None) for sides, _ in found]


@contextmanager
def one_by_one() -> Iterator[None]:
    """Each path is analysed by itself, as a function of any kind is."""

    def variant(*given: object) -> FunctionAnalysis:
        return without_short_cut(analyse_variant(*given))  # type: ignore[arg-type]

    with patch.object(module, "plain_paths", all_general), patch.object(module, "analyse_variant", variant):
        yield


def lifetimes(program: Program, every: int = 1) -> list[PathLifetimes]:
    """The lifetimes in `main`, where each allocation and call, or each second one, is a candidate."""
    analyses = analyse(program)
    cfg = analyses["main"].cfg
    variables: list[Var | None] = [made.var for _, made in cfg.of_type(AllocFresh, CallFunction)]
    return list(path_lifetimes(program, analyses, cfg, variables[::every]))


@settings(max_examples=tries(60, 2000))
@given(plain_programs(ifs=True), st.integers(1, 2))
def test_paths_read_at_once_are_as_each_by_itself(program: Program, every: int) -> None:
    found = lifetimes(program, every)
    with one_by_one():
        assert found == lifetimes(program, every)


@settings(max_examples=tries(40, 1000))
@given(st.integers(0, 10**6))
def test_functions_that_are_plain_on_some_paths(seed: int) -> None:
    program = random_program(seed)
    found = lifetimes(program)
    with one_by_one():
        assert found == lifetimes(program)


def test_a_path_that_is_not_plain_beside_one_that_is() -> None:
    x = param("x", 4)
    body = Body(x)
    a = fresh(body)
    body.call("copy", x, a)
    y = body.branch(lambda: body.packed("f", a), lambda: a)
    body.call("read", y)
    program = body.program(NOTHING)
    paths = plain_paths(analyse(program)["main"].cfg, program, most=2)
    assert paths is not None
    assert [path is None for _, path in paths] == [True, False]
    found = lifetimes(program)
    with one_by_one():
        assert found == lifetimes(program)


def test_what_an_if_yields_is_there_until_it_has() -> None:
    body = Body(param("x", 4))
    a, b = fresh(body), fresh(body)
    body.call("fill", a)
    body.call("fill", b)

    def then() -> Var:
        body.call("read", b)
        body.call("read", b)
        return a

    body.branch(then, lambda: b)
    body.call("fill", b)
    first, second = lifetimes(body.program(NOTHING))
    assert first.lives == [((0, 4),), ((1, 5),)]
    assert second.lives == [((0, 1),), ((1, 3),)]
