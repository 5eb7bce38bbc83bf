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


MISSING = "No CMAKE_CXX_COMPILER could be found"
FULL = "c++: fatal error: the disk is full"


@pytest.mark.parametrize(
    ("compiler", "python", "environment", "words"),
    [
        (None, None, {}, MISSING),
        (f"echo '{FULL}' >&2\nexit 1", None, {}, FULL),
        (None, None, {"CXX": "clang++-99"}, "clang++-99"),  # it was asked for
        (None, "echo 'clang++-99 -pthread'", {"CXX": "clang++-99"}, MISSING),  # Python was built with it
    ],
)
def test_without_a_compiler_that_works_nothing_is_installed(
    tmp_path: Path,
    programs: Path,
    compiler: str | None,
    python: str | None,
    environment: dict[str, str],
    words: str,
) -> None:
    for file, script in ((programs / "c++", compiler), (tmp_path / "python", python)):
        if script is not None:
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o755)
    arguments = [f"-DPython_EXECUTABLE={tmp_path / 'python'}"] if python else []
    status, said = _configured(tmp_path, programs, *arguments, **environment)
    assert status != 0 and words in said
    assert not python or "clang++-99" not in said


def test_pip_does_not_try_again_without_the_core() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
    assert not any("failed" in override.get("if", {}) for override in settings.get("overrides", []))
