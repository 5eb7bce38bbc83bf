"""Tests that start the language server are left out, unless `-m editor` or a nightly run asks for them."""

from __future__ import annotations

import pytest

from tests.scale import NIGHTLY


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if NIGHTLY or "editor" in config.getoption("markexpr"):
        return
    left_out = [item for item in items if item.get_closest_marker("editor")]
    items[:] = [item for item in items if not item.get_closest_marker("editor")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
