from __future__ import annotations

import pytest

from tests.pool.library import need_native


@pytest.fixture(scope="session")
def native() -> None:
    need_native()
