"""Budgets of deployments against sums worked out at each size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists

from symalloc.errors import UsageError
from symalloc.planner.memory_report.deployment import Deployment, FunctionMemory, _workspace
from symalloc.planner.memory_report.device_budget import BudgetOptions, DeviceBudget, Margin, device_budget
from symalloc.planner.memory_report.non_arena import KernelWorkspace, WorkspaceStep, workspace_pool_bytes
from symalloc.program.created_state import StatePart
from symalloc.size.expr import constant
from symalloc.size.parse import parse_expr as size

CACHE = FunctionMemory(
    name="cache",
    state=(StatePart(what="pages", nbytes=size("1000*t"), source="x.cc:1"),),
    takes_none=True,
    symbols=frozenset("t"),
)
STEP = FunctionMemory(
    name="step",
    weights={"w": size("4*v")},
    inputs=size("8*n"),
    call=(size("100*n"), size("30*n + 5000")),
    kept=size("4*v*n"),
    workspace=((size("64*n"),),),
    declared={"n": 64},
    symbols=frozenset("nv"),
)
SAMPLE = FunctionMemory(
    name="sample", weights={"w": size("4*v")}, call=(size("12*v"),), kept=size("4*n"), symbols=frozenset("nv")
)


def _budget(*functions: FunctionMemory, constants: int = 0, **options: Any) -> DeviceBudget:
    chosen = BudgetOptions(**{"device": 10**6, **options})
    return device_budget(
        Deployment(functions=functions or (CACHE, STEP, SAMPLE), constants=constants), chosen
    )


def _total(at: Mapping[str, int]) -> int:
    """The sum worked out by hand."""
    t, n, v = at["t"], at["n"], at["v"]
    call = max(108 * n, 38 * n + 5000, 12 * v)
    return 7 + 11 + 4 * v + 1000 * t + call + max(4 * v * n, 4 * n) + 64 * n


@pytest.mark.parametrize("at", [{"t": 1, "n": 1, "v": 1}, {"t": 90, "n": 50, "v": 2000}])
def test_the_total_and_its_terms(at: Mapping[str, int]) -> None:
    found = _budget(constants=7, extra=11, bind=dict(at))
    assert found.total == _total(at) == sum(term.nbytes or 0 for term in found.terms)
    assert found.fits is (_total(at) <= 10**6)
    assert found.exact and not found.unknown


def test_largest_values_are_the_last_that_fit() -> None:
    at = {"t": 100, "n": 40, "v": 1000}
    found = _budget(constants=7, extra=11, bind=at, free=["t", "n", "v"])
    for one in found.largest:
        assert one.value is not None
        whole = {**one.at, one.symbol: one.value}
        assert _total(whole) <= 10**6 < _total({**whole, one.symbol: one.value + 1})
    assert found.trade is not None
    assert {found.trade.symbol, found.trade.other} == {"t", "n"}
    for value, most in found.trade.rows:
        assert most is not None and _total({"t": value, "n": most, "v": 1000}) <= 10**6
        assert _total({"t": value, "n": most + 1, "v": 1000}) > 10**6


def test_the_condition_is_exact() -> None:
    found = _budget(constants=7, extra=11, bind={"n": 40, "v": 1000}, free="t")
    assert (found.total, found.fits) == (None, None)
    assert found.condition == f"t <= {(10**6 - _total({'t': 0, 'n': 40, 'v': 1000})) // 1000}"


def test_sizes_follow_others_and_declared_bounds() -> None:
    found = _budget(state="cache:t=2*n", bind=["v=3*n", "sample:v=5"], skip=["sample"])
    assert found.declared == ("n",) and found.total == _total({"t": 128, "n": 64, "v": 192}) - 18
    assert "sample" not in {term.function for term in found.terms}
    with pytest.raises(UsageError, match="in terms of itself"):
        _budget(bind="n=v,v=n+1")


def test_what_is_too_much_is_cut() -> None:
    found = _budget(bind={"t": 990, "n": 40, "v": 10})
    assert found.fits is False
    assert {cut.symbol for cut in found.cuts} == {"t", "n"}, "weights are not cut"
    for cut in found.cuts:
        at = {"t": 990, "n": 40, "v": 10, cut.symbol: cut.largest or 0}
        assert _total(at) - 18 <= 10**6
    (pieces,) = [cut for cut in found.cuts if cut.symbol == "n"]
    assert pieces.largest and pieces.pieces == -(-40 // pieces.largest)


def test_unknown_memory_makes_the_total_the_least() -> None:
    vague = FunctionMemory(name="vague", unknown={"call": ("what `f` takes",)})
    for device, verdict in ((10**9, None), (10, False)):
        found = _budget(vague, STEP, device=device, bind={"n": 1, "v": 1})
        assert (found.fits, found.condition) == (verdict, None)
        assert "at least" in str(found) and "(proved)" not in str(found).replace("at no size (proved)", "")
    assert _budget(vague, STEP, bind="v=1", free="n", device=10**9).verdict == "runtime-check"


def test_several_blocks_of_workspace_are_an_upper_bound() -> None:
    kernels = FunctionMemory(name="main", workspace=((size("100*n"),),) * 3, symbols=frozenset("n"))
    limits = {300: True, 299: None, 100: None, 99: False}
    for device, fits in limits.items():
        assert _budget(kernels, device=device, bind="n=1").fits is fits
    assert _budget(kernels, device=99, bind="n=1").verdict == "always-invalid"
    assert _budget(kernels, device=200, bind="n=1").verdict == "runtime-check"
    assert "fits when n <= 3 " in str(_budget(kernels, device=1000))


@given(
    calls=lists(lists(integers(1, 40), min_size=1, max_size=5), min_size=1, max_size=4),
    order=lists(integers(0, 3), max_size=20),
)
def test_the_pool_never_keeps_more(calls: list[list[int]], order: list[int]) -> None:
    kernels = [
        KernelWorkspace(
            steps=(
                *(WorkspaceStep(slot, constant(4096 * pages)) for slot, pages in enumerate(call)),
                *(WorkspaceStep(slot) for slot in range(len(call))),
            )
        )
        for call in calls
    ]
    levels = [max(size.as_constant or 0 for size in level) for level in _workspace(kernels)]
    made = [*kernels, *(kernels[index % len(kernels)] for index in order)]
    assert levels[0] <= workspace_pool_bytes(made, {}) <= sum(levels)


def test_sizes_may_be_said_again_and_be_negative_where_they_are_no_extents() -> None:
    signed = FunctionMemory(
        name="signed", call=(size("n + 100"),), signed=frozenset("n"), symbols=frozenset("n")
    )
    assert _budget(signed, bind=["n=-5", " signed : n = -5"]).total == 95
    page = FunctionMemory(name="page", kept=size("100//p"), symbols=frozenset("p"))
    assert _budget(page, bind="p=7").total == 14
    with pytest.raises(UsageError, match="a size in `page` is divided by p, which is 0"):
        _budget(page, bind="p=0")


def test_a_size_of_one_function_is_shown() -> None:
    found = _budget(bind=["t=1,v=2", "sample:n=3"])
    assert found.values == {"n": "64", "t": "1", "v": "2", "sample:n": "3"}


def test_an_object_that_no_function_makes_is_not_known() -> None:
    reads = FunctionMemory(name="reads", call=(size("10"),), objects=("cache",))
    alone, together = _budget(reads), _budget(reads, CACHE, bind="t=1")
    assert (alone.fits, alone.unknown) == (None, ("what `cache` holds, which no function makes, in `reads`",))
    assert (together.fits, together.unknown) == (True, ())
    assert _budget(reads, CACHE, bind="t=1", skip="cache").fits is None


def test_what_may_not_be_held_is_no_proof_that_it_does_not_fit() -> None:
    either = FunctionMemory(name="either", kept=size("100"), unsure=size("60"))
    makes = FunctionMemory(
        name="makes", state=CACHE.state, takes_none=True, doubt=True, symbols=frozenset("t")
    )
    for functions, limits in (([either], {100: True, 99: None, 40: None, 39: False}), ([makes], {999: None})):
        for device, fits in limits.items():
            found = _budget(*functions, device=device, **({"bind": "t=1"} if functions == [makes] else {}))
            assert (found.fits, found.exact) == (fits, False)
    spread = Deployment(functions=(STEP,), constants=50, spread=True)
    assert device_budget(spread, BudgetOptions(device=40, bind="v=1,n=1")).fits is None  # type: ignore[arg-type]


def test_what_would_fit_is_by_what_is_known() -> None:
    vague = FunctionMemory(name="vague", unknown={"call": ("what `f` takes",)})
    shown = str(_budget(CACHE, vague, bind="t=2000"))
    assert "fits with t = 1000 instead of 2000, by what is known" in shown
    assert "by what is known" not in str(_budget(CACHE, bind="t=2000"))


def test_a_margin_is_bytes_or_a_share() -> None:
    options = [BudgetOptions(device=1000, margin=margin) for margin in (10, "2.5%", Margin(1))]  # type: ignore[arg-type]
    assert [one.margin.of(1000) for one in options] == [10, 25, 1]
    assert _budget(STEP, bind="v=1", margin="100KB").limit == 900_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bind": "m=1"}, "`m` is no symbol of the module's functions; there are n, t, v"),
        ({"free": "chunk"}, "`chunk` is no symbol"),
        ({"bind": "t=nn"}, "`nn` is no symbol of the module's functions; did you mean 'n'"),
        ({"bind": ["t=nn", "m=2"]}, "`m` is no symbol"),
        ({"state": "cache:t=2*chunk"}, "`chunk` is no symbol"),
        ({"state": "cach"}, r"the module has no function `cach`; did you mean 'cache'\?"),
        ({"skip": "x"}, "the module has no function `x`"),
        ({"bind": "n"}, "each size is NAME=SIZE, once"),
        ({"bind": "n=1,n=2"}, "each size is NAME=SIZE, once"),
        ({"bind": "a:b:n=2"}, "write \\[FUNCTION:\\]NAME=SIZE"),
        ({"bind": "n=2+"}, "bind n=2\\+: "),
        ({"state": {"t": 1}}, "it must name functions"),
        ({"bind": ["n=2", "n=3"]}, "`n` is given twice: 2 and 3"),
        ({"state": ["cache:t=2", "cache:t=3"]}, "`t` is given twice in `cache`: 2 and 3"),
        ({"bind": "sample:t=2"}, "`t` is no symbol of `sample`; there are n, v"),
        ({"bind": "n=-1"}, "`n` is -1 in `step`; it must be from 0 on"),
        ({"bind": "v=3,n=v-5"}, "`n` is -2 in `step`"),
        ({"bind": "n=8//v,v=0"}, "a size in `step` is divided by 0"),
        ({"bind": "step:"}, r"write \[FUNCTION:\]NAME=SIZE"),
        ({"margin": "200%"}, "a share of the device is from 0% to less than 100%"),
        ({"device": 0}, "it must be from 1"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        _budget(**options)
