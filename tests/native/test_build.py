"""Building the native core: there is no package without it."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.pool.library import ROOT, SOURCES

NEEDED = ("cmake", "make", "sh", "uname")
pytestmark = pytest.mark.skipif(any(shutil.which(n) is None for n in NEEDED), reason="no cmake and make")


def _cmake(folder: Path, programs: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """The exit status of cmake, and what it prints, where `programs` is the PATH."""
    for name in NEEDED:
        if not (programs / name).exists():
            (programs / name).symlink_to(str(shutil.which(name)))
    done = subprocess.run(
        ["cmake", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={"PATH": str(programs), **environment},
    )
    return done.returncode, done.stdout + done.stderr


def _configured(tmp_path: Path, programs: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    no_others = "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF"  # than on the PATH
    source = ("-S", str(SOURCES), "-B", "build", "-G", "Unix Makefiles")
    return _cmake(tmp_path, programs, *source, no_others, *arguments, **environment)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    return folder


def test_without_a_compiler_nothing_is_installed(tmp_path: Path, programs: Path) -> None:
    status, said = _configured(tmp_path, programs)
    assert status != 0
    assert "No CMAKE_CXX_COMPILER could be found" in said


def test_a_compiler_that_fails_ends_the_installation_with_what_it_says(
    tmp_path: Path, programs: Path
) -> None:
    compiler = programs / "c++"
    compiler.write_text("#!/bin/sh\necho 'c++: fatal error: the disk is full' >&2\nexit 1\n")
    compiler.chmod(0o755)
    status, said = _configured(tmp_path, programs)
    assert status != 0
    assert "c++: fatal error: the disk is full" in said


def test_a_compiler_that_was_asked_for_and_is_not_there_is_an_error(tmp_path: Path, programs: Path) -> None:
    status, said = _configured(tmp_path, programs, CXX="clang++-99")
    assert status != 0
    assert "clang++-99" in said


def test_a_compiler_that_python_was_built_with_and_is_not_there_is_missed_by_nobody(
    tmp_path: Path, programs: Path
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'clang++-99 -pthread'\n")
    python.chmod(0o755)
    status, said = _configured(tmp_path, programs, f"-DPython_EXECUTABLE={python}", CXX="clang++-99")
    assert status != 0
    assert "clang++-99" not in said and "No CMAKE_CXX_COMPILER could be found" in said


def test_pip_does_not_try_again_without_the_core() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
    assert not any("failed" in override.get("if", {}) for override in settings.get("overrides", []))
