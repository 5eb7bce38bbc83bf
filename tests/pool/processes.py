"""Running something in a process that it may end, or in several threads at once."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import subprocess
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import pytest

LONGEST = 120  # seconds: a busy machine is no failure


def ran(*command: str | Path, **how: Any) -> tuple[int, str, str]:
    """The exit status of a program, and what it says on its two streams, unless `how` leads one elsewhere."""
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    done = subprocess.run(command, text=True, check=False, **how)
    return done.returncode, done.stdout or "", done.stderr or ""


def died(work: Callable[[], object]) -> tuple[int, str]:
    """How a copy of this process ends that does `work`, and what it says on the standard error stream.

    The status is minus the signal's number where a signal ends it, 0 where `work` returns.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(writes, 2)
            faulthandler.enable(2)  # pytest has enabled it with a stream of its own
            signal.alarm(LONGEST)  # ends it where it hangs
            work()
            os._exit(0)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads) as stream:
        said = stream.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def survives(work: Callable[[], object]) -> None:
    """Assert that `work` ends without an error in a copy of this process."""
    assert died(work) == (0, "")


def until(condition: Callable[[], bool], why: str = "what was awaited has not come") -> None:
    """Return once a condition holds; a test fails where that takes minutes."""
    for _ in range(LONGEST * 100):
        if condition():
            return
        sleep(0.01)
    pytest.fail(why)


def until_asleep(thread: Thread) -> None:
    """Return once a thread waits for something, not for its turn to run, or has ended."""
    before = ""
    with suppress(FileNotFoundError):  # it has ended
        while (now := _standing(thread)) != before or "State:\tS" not in now:
            before = now
            sleep(0.005)


def _standing(thread: Thread) -> str:
    """Return the state of a thread, and how often it was given up for others: lines of /proc."""
    lines = Path(f"/proc/self/task/{thread.native_id}/status").read_text().splitlines()
    return "\n".join(line for line in lines if line.startswith("State") or "ctxt_switches" in line)


def resident() -> int:
    """Bytes of this process that are in memory and not shared with files."""
    (line,) = re.findall(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(line) * 1024


def at_once(*works: Callable[[], object]) -> None:
    """Does each of `works` in a thread of its own; returns when all have ended."""
    threads = [Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def descendants(pid: int) -> list[int]:
    """Return the processes below one, as far as they are there."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            children += map(int, task.read_text().split())
    return children + [below for child in children for below in descendants(child)]


def until_busy(find: Callable[[], list[int]]) -> None:
    """Return once one of the processes that are found has worked for a while."""
    until(lambda: any(_worked(pid) > 0.2 for pid in find()))


def until_gone(pids: list[int]) -> None:
    """Return once none of these processes runs."""
    until(lambda: all(_fields(pid)[0] == "Z" for pid in pids))


def _worked(pid: int) -> float:
    """Return the seconds of processor time that a process has taken, and those that it has waited for."""
    return sum(map(int, _fields(pid)[11:15])) / os.sysconf("SC_CLK_TCK")


def _fields(pid: int) -> list[str]:
    """Return what the system says of a process, from its state on; Z of one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["Z", *"0" * 20]
