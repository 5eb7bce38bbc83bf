"""Random kernels in which it matters when an element is written: lint beside an execution on bytes."""

from __future__ import annotations

import pytest

from tests.kernels.element_kernels import element_kernel
from tests.kernels.element_verdicts import judged
from tests.scale import NIGHTLY


@pytest.mark.parametrize("seed", range(1_000 if NIGHTLY else 40))
def test_execution_agrees(seed: int) -> None:
    kernel = element_kernel(seed)
    found = judged(kernel)
    assert not found.wrong, kernel.script
    assert found.outcome not in ("harmful, missed", "harmless, error"), kernel.script
