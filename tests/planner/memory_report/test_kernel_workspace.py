from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symalloc.planner.memory_report.non_arena import (
    PAGE,
    KernelWorkspace,
    WorkspaceStep,
    workspace_pool_bytes,
)
from symalloc.size.expr import Expr, constant, symbol
from symalloc.size.parse import parse_expr

N = symbol("n")


def scratch(*steps: Expr | int) -> KernelWorkspace:
    """Takes each expression, as slots 0, 1, …; gives back the slot that a number names."""
    taken = iter(range(len(steps)))
    return KernelWorkspace(
        steps=tuple(
            WorkspaceStep(step) if isinstance(step, int) else WorkspaceStep(next(taken), step)
            for step in steps
        )
    )


def nested(*pages: int) -> KernelWorkspace:
    """Takes so many pages one after the other, and gives them all back, last first."""
    return scratch(*(constant(PAGE * n) for n in pages), *reversed(range(len(pages))))


def test_the_peak_counts_what_is_held_at_once() -> None:
    assert scratch(4 * N, 8 * N, 0, 16 * N, 1, 2).peak == 24 * N
    assert str(scratch(4 * N, 0, symbol("m"), 1).peak) == "max(m, 4*n)"
    assert KernelWorkspace().peak == constant(0)


def test_a_call_gives_the_kernel_its_sizes() -> None:
    called = scratch(4 * N, 0).substitute({"n": parse_expr("a*b + 1")})
    assert str(called.peak) == "4*a*b + 4"


@pytest.mark.parametrize(
    ("calls", "pages"),
    [
        ([], 0),
        ([nested(1), nested(1)], 1),  # what was given back is used again
        ([nested(1), nested(3)], 3),  # the only free block is exchanged for a larger one
        ([nested(3), nested(1)], 3),
        ([nested(2, 1), nested(1, 2)], 3),  # the smallest that fits
        ([nested(2, 2), nested(5)], 7),  # one of two is exchanged, the other is kept
        ([nested(5), nested(2, 2)], 7),  # the second of two cannot have the first's
        ([nested(1, 1), nested(4, 1), nested(1, 4)], 5),
    ],
)
def test_the_pool_follows_tvm(calls: list[KernelWorkspace], pages: int) -> None:
    assert workspace_pool_bytes(calls, {}) == pages * PAGE


def test_requests_are_whole_pages() -> None:
    assert [workspace_pool_bytes([scratch(4 * N, 0)], {"n": n}) for n in (0, 1, 1024, 1025)] == [
        PAGE,
        PAGE,
        PAGE,
        2 * PAGE,
    ]


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), max_size=6))
def test_the_pool_holds_every_call_and_at_most_all_of_them(calls: list[list[int]]) -> None:
    held = workspace_pool_bytes([nested(*pages) for pages in calls], {})
    assert held >= PAGE * max((sum(pages) for pages in calls), default=0)
    assert held <= PAGE * sum(map(sum, calls))
    assert held == workspace_pool_bytes([nested(*pages) for pages in [*calls, *calls]], {})
