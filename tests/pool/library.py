"""The sources of the native core, and programs that are built of them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.pool.processes import ran

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "native"


def built(target: str, folder: Path, *options: str) -> Path:
    """`folder`, with `target` built in it."""
    if shutil.which("cmake") is None:
        pytest.skip("there is no cmake to build the native core with")
    configure = ("cmake", "-S", SOURCES, "-B", folder, f"-DPython_EXECUTABLE={sys.executable}")
    for command in ((*configure, *options), ("cmake", "--build", folder, "--target", target)):
        status, out, err = ran(*command)
        assert status == 0, out + err
    return folder
