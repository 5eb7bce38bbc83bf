"""The pytest plugin of an installed symalloc: the fixture `assert_memory_safe`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from symalloc.linter.diagnostic import Report


@pytest.fixture(scope="session")
def assert_memory_safe() -> Callable[..., Report]:
    """Give `symalloc.assert_memory_safe`, which lints a module or a file and fails with the findings."""
    from symalloc.session.api import assert_memory_safe

    return assert_memory_safe
