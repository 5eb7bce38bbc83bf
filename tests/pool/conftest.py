from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from symalloc.pool.native import installed_library, load_library

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def native() -> None:
    """The native core: the installed one, else one built for the tests."""
    if installed_library() is not None:
        load_library()
        return
    if shutil.which("cmake") is None:
        pytest.skip("the native core is not installed, and there is no cmake to build it")
    load_library(built(ROOT / "build" / "native-tests"))


def built(folder: Path, *options: str, target: str = "symalloc_pool") -> Path:
    """The library, or another target, built in `folder`."""
    configure = ["cmake", "-S", ROOT / "native", "-B", folder, f"-DPython_EXECUTABLE={sys.executable}"]
    for command in ([*configure, *options], ["cmake", "--build", folder, "--target", target]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / ("libsymalloc_pool.so" if target == "symalloc_pool" else target)
