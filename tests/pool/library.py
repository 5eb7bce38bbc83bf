"""The native library that tests run on: the installed one, or one built for them."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from symalloc.native.library import LIBRARY, installed_library, load_library

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "native"
BUILD = ROOT / "build" / "native-tests"


def need_native() -> Path:
    """Load the native library, built anew where the installed one is older, and return its path."""
    found = installed_library()
    if _current(found):
        load_library()
        return found
    with _alone():
        if not _current(BUILD / LIBRARY):
            built("symalloc", BUILD)
    load_library(BUILD / LIBRARY)
    return BUILD / LIBRARY


def package() -> Path:
    """The folder of the library, its headers and CMake files in site-packages, or in a folder like that."""
    library = need_native()
    if library == installed_library():
        return library.parent
    site = BUILD / "site-packages"
    with _alone():
        _run("cmake", "--install", BUILD, "--prefix", site)
        for name in ("tvm", "tvm_ffi"):
            if not (site / name).exists():
                (site / name).symlink_to(Path(find_spec(name).origin).parent)
    return site / "symalloc" / "native"


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


def _current(library: Path) -> bool:
    """Whether `library` is there, and no older than what it is built from."""
    if not library.exists():
        return False
    sources = [
        SOURCES / "CMakeLists.txt",
        *(
            f
            for room in ("bindings", "include/symalloc", "packer", "pool")
            for f in (SOURCES / room).iterdir()
        ),
    ]
    return library.stat().st_mtime >= max(source.stat().st_mtime for source in sources)


@contextmanager
def _alone() -> Iterator[None]:
    """Keeps other test processes from building meanwhile."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
