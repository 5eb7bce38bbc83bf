from __future__ import annotations

import pytest

from tests.pool.library import need_native


@pytest.fixture(scope="session")
def native() -> None:
    need_native()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sanitize: builds the native core anew, with a sanitizer; run by name")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is marked `sanitize`, unless `-m` asks for it."""
    if "sanitize" in config.getoption("markexpr"):
        return
    left_out = [item for item in items if item.get_closest_marker("sanitize") is not None]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
