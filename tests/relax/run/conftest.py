from __future__ import annotations

from typing import Any

import pytest
from tvm import relax

from tests.relax.built import MODULES


@pytest.fixture(scope="module")
def program() -> Any:
    """A chain of kernels over `n` rows, built as it stands."""
    return relax.build(MODULES.Chain, target="llvm")
