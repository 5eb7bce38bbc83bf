"""Child processes: functions called in a process of their own, which TVM may take down.

One protocol for all.  The parent sends a `Job` over a pipe; the child calls the function, may tell what it
finds on the way, and sends a `JobResult` or a `JobFailure`; then it waits for the next job.  Imports no TVM:
the jobs do.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from symalloc.errors import RunError, SymallocError

_LOGGER = "symalloc"
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[2]); "
    "from symalloc.relax.workers.child import serve; serve(int(sys.argv[1]))"
)
_QUOTED_LINES = 3
_LONGEST_LINE = 200
_MEMORY_SHARE = 0.8  # of the machine's memory: a script that asks for more fails here, not elsewhere
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True, slots=True)
class Job:
    """A call of `function`, written `module:name`.

    `tells`: it is given a function, as `tell=`, that sends the parent whatever it is called with.  Relative
    file names start from `folder`.  What the child logs from `log_level` on is logged by the parent.
    """

    function: str
    arguments: Sequence[object] = ()
    named: Mapping[str, object] | None = None
    tells: bool = False
    folder: str | None = None
    log_level: int = logging.WARNING


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job."""

    value: object


@dataclass(frozen=True, slots=True)
class JobFailure:
    """The error that a job raised, as text; `expected`: it is meant for the user, and no fault of ours."""

    message: str
    expected: bool = True


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A line that the child logged, for the logger `name` of the parent."""

    name: str
    level: int
    text: str

    def pass_on(self) -> None:
        """Log the line here."""
        logging.getLogger(self.name).log(self.level, "%s", self.text)


def level_of_log() -> int:
    """The level from which on this process wants to hear."""
    return logging.getLogger(_LOGGER).getEffectiveLevel()


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
        self.printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in stop)
        package = str(Path(__file__).parents[3])
        with theirs:
            # -P: the folder symalloc is started in, which may hold anything, stays off the import path
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno()), package],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.printed,
                pass_fds=[theirs.fileno()],
            )

    def said(self, start: int = 0) -> str:
        """The text that it printed from byte `start` on."""
        self.printed.seek(start)
        return self.printed.read().decode(errors="replace")

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        self.printed.close()


def call_in_child(
    function: str, /, *arguments: Any, what: str, timeout: float | None = None, **named: Any
) -> Any:
    """Call `function`, written `module:name`, in a child process, and return what it returns.

    Arguments and result must pickle.  Raises RunError with the text of the SymallocError that the function
    raised, or where the child takes longer than `timeout` seconds, CrashError where it dies; `what` says what
    the child was doing ("running the module").
    """
    child = ChildProcess()
    try:
        child.pipe.send(Job(function, arguments, named, log_level=level_of_log()))
        answer = _answer(child, what, timeout)
    except (EOFError, OSError):
        status, said = child.process.wait(), child.said()
        raise CrashError(_death(what, status, said), said) from None
    finally:
        child.stop()
    if isinstance(answer, JobFailure):
        raise RunError(answer.message) if answer.expected else RuntimeError(answer.message)
    return answer.value


def _answer(child: ChildProcess, what: str, timeout: float | None) -> JobResult | JobFailure:
    """Wait for the end of the job; what is logged on the way is logged here."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        if not child.pipe.poll(None if end is None else max(0.0, end - time.monotonic())):
            raise RunError(f"{what} took longer than {timeout:g} seconds")
        message: LogEntry | JobResult | JobFailure = child.pipe.recv()
        if not isinstance(message, LogEntry):
            return message
        message.pass_on()


def _death(what: str, status: int, said: str) -> str:
    who = "TVM, or the code that it made," if status < 0 else "the process"
    quoted = (f"\n  {line[:_LONGEST_LINE]}" for line in last_lines(said.splitlines()))
    return f"{who} {how_it_ended(status)} while {what}{''.join(quoted)}"


def how_it_ended(status: int) -> str:
    """`crashed (SIGSEGV)`, or `ended with status 3`."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"crashed ({signal.Signals(-status).name})"
    except ValueError:
        return f"crashed (signal {-status})"


def last_lines(said: Iterable[str]) -> list[str]:
    """The last lines that are not empty."""
    return [line.strip() for line in said if line.strip()][-_QUOTED_LINES:]


# -- the child's side ----------------------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Do the jobs that come over the pipe with that descriptor, until it is closed."""
    _prepare()
    os.dup2(2, 1)  # whatever TVM prints goes where the parent keeps it
    pipe = Connection(descriptor)
    logger = logging.getLogger(_LOGGER)
    logger.addHandler(_Forwarding(pipe.send))
    logger.propagate = False
    while True:
        try:
            job: Job = pipe.recv()
        except EOFError:
            return
        logger.setLevel(job.log_level)
        pipe.send(_done(job, pipe.send))


class _Forwarding(logging.Handler):
    """Sends the parent what is logged."""

    def __init__(self, send: Callable[[object], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send(LogEntry(record.name, record.levelno, record.getMessage()))


def _done(job: Job, tell: Callable[[object], None]) -> JobResult | JobFailure:
    if job.folder is not None:
        with suppress(OSError):  # without the folder, the file is said to be missing
            os.chdir(job.folder)
    module, name = job.function.split(":")
    told = {"tell": tell} if job.tells else {}
    try:
        return JobResult(getattr(import_module(module), name)(*job.arguments, **(job.named or {}), **told))
    except SymallocError as error:
        return JobFailure(str(error))
    except MemoryError:
        return JobFailure("it takes more memory than there is")
    except Exception as error:
        return JobFailure(f"{type(error).__name__}: {error}", expected=False)


def _prepare() -> None:
    """Leave Ctrl-C to the parent, write no core dumps, no byte code, limit memory, end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_memory()
    _die_with_parent()


def _limit_memory() -> None:
    size = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _MEMORY_SHARE)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _die_with_parent() -> None:
    """On Linux, be killed when the parent dies without having closed the pipe."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
