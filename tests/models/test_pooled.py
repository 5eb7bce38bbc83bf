"""Models of the zoo on the pool; `pooled.py` as a script makes 500 calls of each."""

from __future__ import annotations

import pytest

from tests.models.pooled import differing
from tests.pool.library import need_native

CALLS = 12


@pytest.mark.parametrize("planned", (False, True))
@pytest.mark.parametrize("name", ("llama_grouped_queries", "gru", "nested_tuples"))
def test_results_are_those_of_the_stock_allocator(name: str, planned: bool) -> None:
    need_native()
    assert list(differing(name, CALLS, planned=planned)) == []


def test_results_are_those_of_the_stock_allocator_in_guard_mode() -> None:
    need_native()
    assert list(differing("mlp_dynamic_batch", CALLS, planned=True, guard=True)) == []
