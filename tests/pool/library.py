"""The sources of the native core, and programs that are built of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "native"


def built(target: str, folder: Path, *options: str) -> Path:
    """`folder`, with `target` built in it."""
    if shutil.which("cmake") is None:
        pytest.skip("there is no cmake to build the native core with")
    configure = ("cmake", "-S", SOURCES, "-B", folder, f"-DPython_EXECUTABLE={sys.executable}")
    _run(*configure, *options)
    _run("cmake", "--build", folder, "--target", target)
    return folder


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
