from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.pool.library import ROOT, built


def _runs(folder: Path) -> None:
    done = subprocess.run([folder / "symalloc_tracker"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.endswith("live 0, used 0, reserved 0\n")


@pytest.mark.sanitize
@pytest.mark.parametrize("sanitizer", ("thread", "address"))
def test_observers_and_callbacks_are_clean(sanitizer: str) -> None:
    folder = ROOT / "build" / f"stress-{sanitizer}"
    _runs(built("symalloc_tracker", folder, f"-DSYMALLOC_SANITIZE={sanitizer}"))
