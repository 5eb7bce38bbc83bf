"""Signals that end the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from time import sleep

import pytest

from symalloc.cli.main import Interruption

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _handlers() -> list[object]:
    return [signal.getsignal(number) for number in ENDS]


@pytest.fixture(autouse=True)
def _listening() -> object:
    """Whatever this run was started with: Ctrl-C is ignored in the background of a shell."""
    before = {number: signal.getsignal(number) for number in ENDS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


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


def test_signals_that_are_ignored_stay_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does
    with Interruption() as interruption:
        signal.raise_signal(signal.SIGHUP)
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
