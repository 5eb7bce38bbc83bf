"""Building the native core: there is no package without it."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from tests.pool.library import ROOT, SOURCES
from tests.pool.processes import ran

NEEDED = ("cmake", "make", "sh", "uname")
pytestmark = pytest.mark.skipif(any(shutil.which(n) is None for n in NEEDED), reason="no cmake and make")


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
    tmp_path: Path, compiler: str | None, python: str | None, environment: dict[str, str], words: str
) -> None:
    programs = tmp_path / "programs"  # all that are on the PATH
    programs.mkdir()
    for name in NEEDED:
        (programs / name).symlink_to(str(shutil.which(name)))
    for file, script in ((programs / "c++", compiler), (tmp_path / "python", python)):
        if script is not None:
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o755)
    source = ("-S", SOURCES, "-B", "build", "-G", "Unix Makefiles", "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF")
    named = [f"-DPython_EXECUTABLE={tmp_path / 'python'}"] if python else []
    environment = {"PATH": str(programs), **environment}
    status, out, err = ran("cmake", *source, *named, cwd=tmp_path, env=environment)
    assert status != 0 and words in out + err
    assert not python or "clang++-99" not in out + err


def test_pip_does_not_try_again_without_the_core() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
    assert not any("failed" in override.get("if", {}) for override in settings.get("overrides", []))
