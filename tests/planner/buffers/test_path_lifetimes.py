"""Lifetimes path by path."""

from __future__ import annotations

from symalloc.analysis.interprocedural import analyse
from symalloc.planner.buffers.candidates import PathLifetimes, path_lifetimes
from symalloc.program.ir import AllocFresh, CallFunction, Program, Var
from tests.analysis.test_live_ranges import Code
from tests.program.build import NOTHING, param


def lifetimes(program: Program, every: int = 1) -> list[PathLifetimes]:
    """The lifetimes in `main`, where each allocation and call, or each second one, is a candidate."""
    analyses = analyse(program)
    cfg = analyses["main"].cfg
    variables: list[Var | None] = [made.var for _, made in cfg.of_type(AllocFresh, CallFunction)]
    return list(path_lifetimes(program, analyses, cfg, variables[::every]))


def test_what_an_if_yields_is_there_until_it_has() -> None:
    body = Code(param("x", 4))
    a, b = body.fresh(filled=False), body.fresh(filled=False)
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
