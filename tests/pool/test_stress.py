"""The native core under threads: as it is built, and under the sanitizers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.pool.library import ROOT, built

BUILDS = {"plain": 100_000, "address": 20_000, "thread": 5_000}  # operations of each thread


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
def test_threads_lose_nothing(build: str) -> None:
    options = [] if build == "plain" else [f"-DSYMALLOC_SANITIZE={build}"]
    folder: Path = built("symalloc_stress", ROOT / "build" / f"stress-{build}", *options)
    done = subprocess.run(
        [folder / "symalloc_stress", "8", str(BUILDS[build])], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    counts = re.match(r"(\d+) operations, (\d+) refused at the limit, 0 faults", done.stdout)
    assert counts is not None, done.stdout
    assert int(counts[1]) > 7 * BUILDS[build]
    assert int(counts[2]) > 0, "the limit has been met"
