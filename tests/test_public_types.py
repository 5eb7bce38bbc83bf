"""The public names as mypy sees them: symalloc/__init__.pyi is their one list."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import symalloc
from tests.pool.processes import ran

pytestmark = pytest.mark.slow

USER = """\
import symalloc
from symalloc import *
reveal_type(symalloc.lint("model.py").summary.constraints)
reveal_type(symalloc.prove("m <= 3").verdict)
reveal_type(symalloc.Pool().limit)
reveal_type(plan)
symalloc.nothing_such
"""


def test_mypy_sees_the_types_of_public_names(tmp_path: Path) -> None:
    names = "".join(f"symalloc.{name}\n" for name in symalloc.__all__)
    (tmp_path / "user.py").write_text(USER + names)
    checked = ("mypy", "--strict", "--config-file", "pyproject.toml", tmp_path / "user.py")
    _, answer, _ = ran(sys.executable, "-m", *checked, cwd=Path(__file__).parent.parent)
    revealed = [line.split("is ")[1] for line in answer.splitlines() if "Revealed" in line]
    for text, expected in zip(revealed, ("int", "Verdict", "int", "PlannedModule"), strict=True):
        assert expected in text
    (error,) = [line for line in answer.splitlines() if "error" in line and "Found" not in line]
    assert 'no attribute "nothing_such"' in error
