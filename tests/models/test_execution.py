"""A few models of the zoo are built and run by TVM alone (all of them by `execution.py` as a script)."""

from __future__ import annotations

import pytest

from tests.models.execution import run
from tests.models.zoo import MODELS


@pytest.mark.parametrize("name", ["mlp_dynamic_batch", "llama_decode_concat", "nested_tuples", "unique"])
def test_runs(name: str) -> None:
    assert run(MODELS[name]) is not None
