"""The native core that tests run on: the installed one, else one built for them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from symalloc.pool.native import installed_library, load_library

ROOT = Path(__file__).parents[2]


def need_native() -> None:
    """Loads the native core; skips the test where there is none and no cmake to build it."""
    if installed_library() is not None:
        load_library()
        return
    load_library(built("symalloc_pool", ROOT / "build" / "native-tests") / "libsymalloc_pool.so")


def built(target: str, folder: Path, *options: str) -> Path:
    """`folder`, with `target` built in it."""
    if shutil.which("cmake") is None:
        pytest.skip("there is no cmake to build the native core with")
    configure = ["cmake", "-S", ROOT / "native", "-B", folder, f"-DPython_EXECUTABLE={sys.executable}"]
    for command in ([*configure, *options], ["cmake", "--build", folder, "--target", target]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder
