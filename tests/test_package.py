"""The source distribution: what it takes along."""

from __future__ import annotations

import inspect
import shutil
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OWN = (
    "benchmarks/b.py",
    "docs/d.md",
    "examples/e.py",
    "native/n.cc",
    "rules/r.toml",
    "symalloc/s.py",
    "tests/t.py",
)
OTHERS = (
    ".venv/lib/site-packages/numpy/tests/t.py",
    ".venv/rules/r.toml",
    "build/docs/d.md",
    "tests/__pycache__/t.pyc",
)


def test_a_source_distribution_takes_nothing_of_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = pytest.importorskip("scikit_build_core.build._file_processor").each_unignored_file
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"].get("sdist", {})
    for name in (*OWN, *OTHERS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    shutil.copy(ROOT / ".gitignore", tmp_path)
    monkeypatch.chdir(tmp_path)
    more = {"mode": "default"} if "mode" in inspect.signature(found).parameters else {}
    taken = {str(file) for file in found(Path(), build_dir="build/x", **settings, **more)}
    assert taken == {*OWN, ".gitignore"}
