from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tvm import relax

from symalloc.relax.files.load import load_one


@pytest.fixture(scope="module")
def program() -> Any:
    """A chain of kernels over `n` rows, built as it stands."""
    module = load_one(Path(__file__).parents[1] / "modules_to_plan.py", module="Chain")
    return relax.build(module, target="llvm")
