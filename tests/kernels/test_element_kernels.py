"""Random kernels in which it matters when an element is written: lint beside an execution on bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kernels.composed_kernels import composed_kernel
from tests.kernels.element_kernels import ElementKernel, element_kernel
from tests.kernels.element_verdicts import judged
from tests.scale import NIGHTLY

PAST = (511939,)
"""A scratch that nobody writes, read outside of itself, too."""


@pytest.mark.parametrize("draw", [element_kernel, composed_kernel])
@pytest.mark.parametrize("seed", [*range(1_000 if NIGHTLY else 15), *PAST])
def test_execution_agrees(seed: int, draw: Callable[[int], ElementKernel]) -> None:
    kernel = draw(seed)
    found = judged(kernel)
    assert not found.wrong, kernel.script
    assert found.outcome not in ("harmful, missed", "harmless, error"), kernel.script
