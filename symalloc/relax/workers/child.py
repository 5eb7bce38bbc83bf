"""Child processes: functions called in a process of their own, which TVM may take down.

One protocol for all.  The parent sends a job over a pipe: the arguments of `_done`, and from what level on
the child sends what it logs.  The child calls the function, may tell what it finds on the way, and sends a
`JobEnd`; then it waits for the next job.  Imports no TVM: the jobs do.
"""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from logging.handlers import QueueHandler
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

from symalloc.errors import RunError, SymallocError
from symalloc.native.library import leave_torch_out

_LOGGER = logging.getLogger("symalloc")
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[2]); "
    "from symalloc.relax.workers.child import serve; serve(int(sys.argv[1]))"
)
_QUOTED_LINES = 3
_LONGEST_LINE = 200
_MEMORY_SHARE = 0.8  # of the machine's memory: a script that asks for more fails here, not elsewhere
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of a job: its result, or the text of the error that it raised.

    `expected`: the error is meant for the user, and no fault of ours.
    """

    value: Any = None
    error: str | None = None
    expected: bool = True


class CrashError(RunError):
    """The child died; `said` is all that stood on its standard error stream."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


# -- the parent's side ---------------------------------------------------------------------------------------


class ChildProcess:
    """A child process that waits for jobs; what it prints is kept for the case that it dies."""

    def __init__(self) -> None:
        self.pipe, theirs = Pipe()
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in stop)
        self._begins = 0  # bytes that it printed for other jobs
        package = str(Path(__file__).parents[3])
        with theirs:
            # -P: the folder symalloc is started in, which may hold anything, stays off the import path
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno()), package],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._printed,
                pass_fds=[theirs.fileno()],
            )

    def begin(self, function: str, /, *arguments: object, tells: bool = False, **named: object) -> None:
        """Send a job; file names are relative to the folder that this process is in now."""
        self._begins = os.fstat(self._printed.fileno()).st_size
        folder = None
        with suppress(FileNotFoundError):  # it was deleted
            folder = str(Path.cwd())
        self.pipe.send(((function, arguments, named, tells, folder), _LOGGER.getEffectiveLevel()))

    def receive(self) -> object:
        """The next thing that the job tells, or its JobEnd; None for what it logged, which is logged here.

        Raises EOFError and OSError where the process is gone.
        """
        message: object = self.pipe.recv()
        if not isinstance(message, logging.LogRecord):
            return message
        logger = logging.getLogger(message.name)
        if logger.isEnabledFor(message.levelno):
            logger.handle(message)
        return None

    def said(self) -> str:
        """The text that it printed since the job began."""
        self._printed.seek(self._begins)
        return self._printed.read().decode(errors="replace")

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        self._printed.close()


def call_in_child(
    function: str, /, *arguments: Any, what: str, timeout: float | None = None, **named: Any
) -> Any:
    """Call `function`, written `module:name`, in a child process, and return what it returns.

    Arguments and result must pickle.  Raises RunError with the text of the SymallocError that the function
    raised, or where the child takes longer than `timeout` seconds, CrashError where it dies; `what` says what
    the child was doing ("running the module").
    """
    child = ChildProcess()
    end = None
    deadline = time.monotonic() + (timeout or 0)
    try:
        child.begin(function, *arguments, **named)
        while not isinstance(end, JobEnd):
            if not child.pipe.poll(None if timeout is None else max(0.0, deadline - time.monotonic())):
                raise RunError(f"{what} took longer than {timeout:g} seconds")
            end = child.receive()
    except (EOFError, OSError):
        status, said = child.process.wait(), child.said()
        who = "TVM, or the code that it made," if status < 0 else "the process"
        quoted = "".join(f"\n  {line[:_LONGEST_LINE]}" for line in last_lines(said.splitlines()))
        raise CrashError(f"{who} {how_it_ended(status)} while {what}{quoted}", said) from None
    finally:
        child.stop()
    if end.error is not None:
        raise RunError(end.error) if end.expected else RuntimeError(end.error)
    return end.value


def how_it_ended(status: int) -> str:
    """`crashed (SIGSEGV)`, or `ended with status 3`."""
    if status >= 0:
        return f"ended with status {status}"
    names = {one.value: one.name for one in signal.Signals}
    return f"crashed ({names.get(-status, f'signal {-status}')})"


def last_lines(said: Iterable[str]) -> list[str]:
    """The last lines that are not empty."""
    return [line.strip() for line in said if line.strip()][-_QUOTED_LINES:]


# -- the child's side ----------------------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Do the jobs that come over the pipe with that descriptor, until it is closed."""
    _prepare()
    leave_torch_out()
    os.dup2(2, 1)  # whatever TVM prints goes where the parent keeps it
    pipe = Connection(descriptor)
    sending: Any = SimpleNamespace(put_nowait=pipe.send)
    _LOGGER.addHandler(QueueHandler(sending))  # it makes text of what is logged
    _LOGGER.propagate = False
    with suppress(EOFError):
        while True:
            job, level = pipe.recv()
            _LOGGER.setLevel(level)
            pipe.send(_done(pipe, *job))


def _done(
    pipe: Connection,
    function: str,
    arguments: Sequence[object],
    named: Mapping[str, object],
    tells: bool,
    folder: str | None,
) -> JobEnd:
    """Call `function`, written `module:name`; with `tells` it is given a function, as `tell=`, that sends the
    parent whatever it is called with.  Relative file names start from `folder`.
    """
    if folder is not None:
        with suppress(OSError):  # without the folder, the file is said to be missing
            os.chdir(folder)
    module, name = function.split(":")
    told = {"tell": pipe.send} if tells else {}
    try:
        return JobEnd(getattr(import_module(module), name)(*arguments, **named, **told))
    except SymallocError as error:
        return JobEnd(error=str(error))
    except MemoryError:
        return JobEnd(error="it takes more memory than there is")
    except Exception as error:
        return JobEnd(error=f"{type(error).__name__}: {error}", expected=False)


def _prepare() -> None:
    """Leave Ctrl-C to the parent, write no core dumps, no byte code, limit memory, end with the parent."""
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    size = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _MEMORY_SHARE)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
