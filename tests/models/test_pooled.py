"""Models of the zoo on the pool and by TVM alone; `pooled.py` and `execution.py`, as scripts, try more."""

from __future__ import annotations

import pytest

from tests.models.execution import run
from tests.models.pooled import differing
from tests.models.zoo import MODELS
from tests.scale import pairs, tries

CALLS = tries(6, 12)


@pytest.mark.parametrize(
    ("name", "planned"), pairs(("llama_grouped_queries", "gru", "nested_tuples"), (True, False))
)
def test_results_are_those_of_the_stock_allocator(name: str, planned: bool) -> None:
    assert list(differing(name, CALLS, planned=planned)) == []


def test_results_are_those_of_the_stock_allocator_in_guard_mode() -> None:
    assert list(differing("mlp_dynamic_batch", CALLS, planned=True, guard=True)) == []


@pytest.mark.parametrize("name", ["mlp_dynamic_batch", "llama_decode_concat", "nested_tuples", "unique"])
def test_tvm_alone_runs_them(name: str) -> None:
    assert run(MODELS[name]) is not None
