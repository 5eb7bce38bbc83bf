"""A forked child is like one that is started anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import ForkingPopen

Start = Callable[..., subprocess.Popen[Any]]
REPORT = (
    "import os, sys\n"
    "leads, numbers = os.getsid(0) == os.getpid(), sorted(os.listdir('/proc/self/fd'))\n"
    "print(sys.argv, os.getcwd(), os.environ['COLOUR'], leads, numbers)"
)


@pytest.fixture(params=("forked", "started"))
def start(request: pytest.FixtureRequest) -> Start:
    """Start Python as a module of symalloc would: forked, or from the beginning."""
    if request.param == "started":
        return subprocess.Popen
    names: Mapping[str, Any] = {"__name__": "symalloc.here", "popen": ForkingPopen}
    return eval("lambda *a, **k: popen(*a, **k)", dict(names))  # type: ignore[no-any-return]


def test_arguments_folder_environment_session_and_descriptors(start: Start, tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    child = start(
        [sys.executable, "-P", "-c", REPORT, "one", "two words"],
        cwd=tmp_path,
        env={**os.environ, "COLOUR": "blue"},
        stdout=subprocess.PIPE,
        pass_fds=[theirs],
        start_new_session=True,
        text=True,
    )
    os.close(theirs)
    out, _ = child.communicate()
    os.close(ours)
    listed = sorted(map(str, {0, 1, 2, theirs} | {next(n for n in range(3, 99) if n != theirs)}))
    assert out == f"['-c', 'one', 'two words'] {tmp_path} blue True {listed}\n"


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        ("", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no')", 1, "no"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import os; os.kill(os.getpid(), 2)", -signal.SIGINT, "KeyboardInterrupt"),
    ],
)
def test_exit_status_and_last_words(start: Start, program: str, status: int, said: str) -> None:
    program = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {program}"
    child = start([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    _, err = child.communicate()
    assert child.returncode == status
    assert err.splitlines()[-1:] == ([said] if said else [])


def test_what_others_start_is_not_forked() -> None:
    child = ForkingPopen([sys.executable, "-c", "import sys; sys.exit('tvm' in sys.modules)"])
    assert child.wait() == 0
