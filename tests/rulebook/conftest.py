"""A writer of rule files: a correct house rule, with lines changed, dropped or added."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

HOUSE_RULE = {
    "id": '"HOUSE101"',
    "name": '"odd-storage"',
    "severity": '"error"',
    "site": '"tensor-on-storage"',
    "constraint": '"storage.size % 256 == 0"',
    "message": '"storage `{storage}` of {storage.size} is no multiple of 256 B"',
    "doc": '"Storages come in multiples of 256 bytes. Our allocator wants it so."',
}
RuleWriter = Callable[..., Path]


@pytest.fixture
def write_rule(tmp_path: Path) -> RuleWriter:
    """`write_rule(file="a.toml", tail="", **lines)` writes a rule; a line of None is left out."""

    def write(file: str = "HOUSE101.toml", tail: str = "", **lines: str | None) -> Path:
        merged = {**HOUSE_RULE, **lines}
        path = tmp_path / "house" / file
        path.parent.mkdir(exist_ok=True)
        text = "".join(f"{key} = {value}\n" for key, value in merged.items() if value is not None)
        path.write_text(text + tail)
        return path

    return write
