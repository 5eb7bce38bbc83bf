"""The examples of docs/pool.md run."""

from __future__ import annotations

import re
from pathlib import Path

from tests.pool.library import need_native

DOCUMENT = Path(__file__).parents[1] / "docs" / "pool.md"


def test_examples_run_one_after_the_other() -> None:
    need_native()
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(DOCUMENT), "exec"), names)
