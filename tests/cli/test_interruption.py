"""Signals that end the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from time import sleep

import pytest

from symalloc.cli.main import Interruption
from tests.pool.processes import ran

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _handlers() -> list[object]:
    return [signal.getsignal(number) for number in ENDS]


@pytest.mark.parametrize(("number", "status"), [*zip(ENDS, (130, 143, 129), strict=True)])
def test_a_signal_is_raised_once(number: signal.Signals, status: int) -> None:
    before = _handlers()
    with Interruption() as interruption:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        signal.raise_signal(signal.SIGINT)  # passed on by a parent that got it as well
        signal.raise_signal(number)
    assert (interruption.came, interruption.status) == (True, status)
    assert _handlers() == before


class Ends:
    """What takes its time to go: a signal comes meanwhile, or what raises it again."""

    def __init__(self, number: signal.Signals | None = None) -> None:
        self.number = number

    def __del__(self) -> None:
        if self.number is not None:
            signal.raise_signal(self.number)
        sleep(0.05)


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_that_a_destructor_passes_over_is_raised_again(number: signal.Signals) -> None:
    before, hook = _handlers(), sys.unraisablehook
    with Interruption() as interruption, pytest.raises(KeyboardInterrupt):
        Ends(number)
        assert interruption.came
        for _ in range(5):
            Ends()  # which pass it over, too
        sleep(60)
    assert (interruption.number, _handlers(), sys.unraisablehook) == (number, before, hook)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


SWALLOWED = """
import os, signal, sys, z3
ends = z3.Context.__del__
def slowly(self):
    z3.Context.__del__ = ends
    os.kill(os.getpid(), signal.SIGINT)
    ends(self)
z3.Context.__del__ = slowly
from symalloc.cli.main import main
main(["prove", "--batch", "hard.json", "-o", "answers.json"])
"""


@pytest.mark.real_process
def test_a_signal_during_a_destructor_of_z3_ends_the_command(tmp_path: Path) -> None:
    hard = [
        f"a*a*a + b*b*b*{i + 3} + c*c*c != {i * i + 31}*d*e + 7*(a*b // (c + {i + 1}))" for i in range(300)
    ]
    (tmp_path / "hard.json").write_text(json.dumps([{"id": c, "constraint": c} for c in hard]))
    status, out, err = ran(sys.executable, "-c", SWALLOWED, cwd=tmp_path, timeout=120)
    assert (status, out, err.strip()) == (130, "", "interrupted")
    assert [file.name for file in tmp_path.iterdir()] == ["hard.json"]


def test_signals_that_are_ignored_stay_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does
    try:
        with Interruption() as interruption:
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert not interruption.came


def test_another_thread_leaves_signals_alone() -> None:
    before, inside = _handlers(), []

    def work() -> None:
        with Interruption():
            inside.append(_handlers())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]


STUCK = """
import signal, sys, time
from symalloc.cli import main
main._GRACE = 0.0
signal.signal(signal.SIGTERM, signal.SIG_DFL)
with main.Interruption():
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        print("cleaning", flush=True)
        time.sleep(60)
"""


@pytest.mark.real_process
def test_a_second_signal_ends_what_does_not_come_to_an_end() -> None:
    child = subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for expected in ("ready", "cleaning"):
        assert child.stdout.readline().strip() == expected
        sleep(0.01)
        os.kill(child.pid, signal.SIGTERM)
    assert child.wait(30) == -signal.SIGTERM
    child.stdout.close()
