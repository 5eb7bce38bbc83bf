"""Child processes, which TVM may take down, and reading files in them: who reads what, deaths, deadlines.

One protocol for all.  The parent sends a job over a pipe: the arguments of `_done`, and from what level on
the child sends what it logs.  The child calls the function, may tell what it finds on the way, and sends a
`JobEnd`; then it waits for the next job.  A worker that dies takes with it only what it was doing: what it
found before is kept, the death becomes a problem, a new worker reads the rest of the file.  Imports no TVM:
the jobs do.
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
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from logging.handlers import QueueHandler
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import IO, Any

from symalloc.errors import RunError, SymallocError
from symalloc.native.library import leave_torch_out
from symalloc.program.reading import FileResult, Message, ModuleBegun, ReadOptions, ReadProblem, result_of
from symalloc.shown import version_of

_LOG = logging.getLogger("symalloc")
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[2]); "
    "from symalloc.relax.workers.worker_pool import serve; serve(int(sys.argv[1]))"
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
        self.pipe.send(((function, arguments, named, tells, folder), _LOG.getEffectiveLevel()))

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
    _LOG.addHandler(QueueHandler(sending))  # it makes text of what is logged
    _LOG.propagate = False
    with suppress(EOFError):
        while True:
            job, level = pipe.recv()
            _LOG.setLevel(level)
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


# -- which worker reads what -------------------------------------------------------------------------------


_READ_JOB = "symalloc.relax.workers.programs:read_path"
_STARTUP_SECONDS = 60.0  # importing TVM takes one or two; a loaded machine takes longer
_MOMENT = 0.5  # seconds between two looks at the clock
_WORTH_A_WORKER = 1.0  # seconds of work that is left over to other workers before one more is started
_TIMEOUT_HINT = (
    "TVM parses some 600 lines of TVMScript a second, and loads the JSON of tvm.ir.save_json faster; "
    "--timeout allows more seconds for one file"
)
_MAX_DEATHS = 20  # per file: modules that each kill a worker


@dataclass(slots=True, eq=False)
class _Reading:
    """The state of reading one file: what was told of it, and how often a worker died of it.

    `data` is its content, where that is not in a file.
    """

    file: str
    data: bytes | None = None
    told: list[Message] = field(default_factory=list)
    done: bool = False
    deaths: int = 0

    @property
    def module(self) -> ModuleBegun | None:
        """The last module that was begun."""
        return next((message for message in reversed(self.told) if isinstance(message, ModuleBegun)), None)

    @property
    def begun(self) -> int:
        """The number of modules begun."""
        return self.module.number + 1 if self.module else 0


class _Worker(ChildProcess):
    """A child process, and the file that it is busy with; `ready`: it has imported TVM."""

    def __init__(self) -> None:
        super().__init__()
        self.reading: _Reading | None = None
        self.step = "starting TVM for"
        self.ready = False
        self.deadline = float("inf")

    def read(self, reading: _Reading, options: ReadOptions) -> None:
        """Ask for a file."""
        self.reading = reading
        if self.ready:
            self.step = "reading"
        self.deadline = time.monotonic() + (options.timeout if self.ready else _STARTUP_SECONDS)
        self.begin(_READ_JOB, Path(reading.file), options, reading.begun, reading.data, tells=True)

    def enters(self, step: str, options: ReadOptions) -> None:
        """Note what it does now; the time for a file counts from its first sign of life."""
        if not self.ready:
            self.deadline = time.monotonic() + options.timeout
        self.step, self.ready = step, True

    @property
    def doing(self) -> str:
        """The step and the file that it is busy with."""
        return f"{self.step} {Path(self.reading.file).name}" if self.reading else ""

    @property
    def stage(self) -> str | None:
        """The pass of TVM that it is in; None while it does something else."""
        return self.step if self.step[:1].isupper() and " " not in self.step else None


class WorkerPool(AbstractContextManager["WorkerPool"]):
    """Worker processes that stay for the next reading: to start one costs a second, for TVM to be imported.

    Use it in a `with` statement: the processes are gone when that is left, whatever leaves it.  One reading
    goes on at a time.
    """

    def __init__(self, size: int | None = None) -> None:
        """At most `size` processes, None for one per CPU; none is started yet."""
        self._size = size if size is not None else os.cpu_count() or 1
        self._workers: list[_Worker] = []
        self._waiting: deque[_Reading] = deque()
        self._options = ReadOptions()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start a process now, so that it imports TVM while something else is done here."""
        if not self._workers:
            self._workers.append(_Worker())

    def read(
        self,
        files: Sequence[Path],
        options: ReadOptions,
        watch: Callable[[], None] = lambda: None,
        contents: Mapping[Path, bytes] = MappingProxyType({}),
    ) -> Iterator[FileResult]:
        """Read `files`, each once; results come in their order, each as soon as it can.

        When the iterator is closed or left by an exception, what is still being read is given up.  `watch`
        is called at least twice a second.  What is done now is logged, with how many of how many files are
        read.  `contents` are those of files that need not exist, such as STDIN.
        """
        readings = [_Reading(str(file), contents.get(file)) for file in dict.fromkeys(files)]
        self._options, self._waiting = options, deque(readings)
        begun, said = time.monotonic(), ("", 0)
        try:
            for reading in readings:
                while not reading.done:
                    self._feed(begun)
                    self._listen()
                    watch()
                    doing, done = self._busy[0].doing if self._busy else "", sum(r.done for r in readings)
                    if doing and (doing, done) != said:
                        said = doing, done
                        _LOG.info(doing, extra={"done": done, "total": len(readings)})
                self._feed(begun)  # they read on while the caller works on this one
                found = result_of(reading.file, reading.told)
                counts = len(found.programs), len(found.problems)
                _LOG.debug("read %s: %d programs, %d problems", found.file, *counts)
                yield found
        finally:
            for worker in self._busy:
                if worker.reading in readings:
                    self._end(worker)

    def close(self) -> None:
        """End all processes."""
        while self._workers:
            self._end(self._workers[-1])

    @property
    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.reading is not None]

    def _end(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.stop()

    def _feed(self, begun: float) -> None:
        while self._waiting and (worker := self._idle(begun)) is not None:
            try:
                worker.read(self._waiting.popleft(), self._options)
            except (BrokenPipeError, ConnectionResetError):
                self._bury(worker)

    def _idle(self, begun: float) -> _Worker | None:
        """A worker with nothing to do, started if need be; None where one has to be waited for."""
        for worker in [w for w in self._workers if w.reading is None]:
            if worker.process.poll() is None:
                return worker
            self._end(worker)  # it died idle: no file is to blame
        # another process is not worth its start where a running one is done sooner
        warm = any(worker.ready for worker in self._workers)
        wanted = min(self._size, len(self._busy) + len(self._waiting))
        if len(self._workers) >= wanted or (warm and time.monotonic() - begun <= _WORTH_A_WORKER):
            return None
        self._workers.append(_Worker())
        return self._workers[-1]

    def _listen(self) -> None:
        """Wait until a worker says something, or for a moment."""
        soonest = min((worker.deadline for worker in self._busy), default=0.0) - time.monotonic()
        ready = wait([worker.pipe for worker in self._busy], max(0.0, min(soonest, _MOMENT)))
        for worker in self._busy:
            if worker.pipe in ready:
                self._receive(worker)
            elif worker.deadline <= time.monotonic():
                self._bury(worker, overdue=True)

    def _receive(self, worker: _Worker) -> None:
        try:
            message: Any = worker.receive()
        except (EOFError, OSError):
            self._bury(worker)
            return
        if isinstance(message, str):
            worker.enters(message, self._options)
        elif isinstance(message, JobEnd):
            self._finish(worker, message)
        elif message is not None and worker.reading is not None:
            worker.reading.told.append(message)

    def _finish(self, worker: _Worker, end: JobEnd) -> None:
        """Take up the end of a job; one that raised had too little memory, or is a fault of ours."""
        problem: tuple[str, str | None] | None = None
        if end.error is not None and end.expected:
            problem = f"reading {end.error}", None
        elif end.error is not None:
            hint = "this is a fault of symalloc; please report it"
            problem = f"symalloc failed while {worker.doing}: {end.error}", hint
        self._leave(worker, problem, again=not end.expected)

    def _bury(self, worker: _Worker, *, overdue: bool = False) -> None:
        """Say why `worker` is gone, and have the rest of its file read by another."""
        if not overdue:
            worker.process.wait()
        why = ": out of time" if overdue else ""
        _LOG.debug("the worker is gone that was %s%s", worker.doing or "idle", why)
        self._leave(worker, _death(worker, self._options, overdue=overdue), again=True)
        self._end(worker)

    def _leave(self, worker: _Worker, problem: tuple[str, str | None] | None, *, again: bool) -> None:
        """Let go of the file of `worker`, and note a problem with the module that it has begun: the file is
        done, or the modules in it that were not begun are read `again`.
        """
        reading, stage = worker.reading, worker.stage
        worker.reading = None
        if reading is None:
            return
        module, file = reading.module, reading.file
        if problem is not None:
            of, (message, hint) = module.name if module else None, problem
            reading.told.append(
                ReadProblem(file=file, message=message, hint=hint, module=of, stage=stage, passing=True)
            )
        reading.deaths += again
        nothing_left = module is None or reading.begun == module.count
        reading.done = not again or nothing_left or reading.deaths == _MAX_DEATHS
        if not reading.done:
            self._waiting.appendleft(reading)


def _death(worker: _Worker, options: ReadOptions, *, overdue: bool) -> tuple[str, str]:
    """The problem with a process that died, or took too long, and what to do."""
    stage, file = worker.stage, Path(worker.reading.file if worker.reading else "").name
    where = f"in {stage} while lowering {file}" if stage else f"while {worker.doing}"
    if overdue:
        return f"gave up after {options.timeout:g} s {where}", _TIMEOUT_HINT
    lines = worker.said().splitlines()
    words = "\n".join(last_lines(line for line in lines if not line.lstrip().startswith("File ")))
    said = f"; it said:\n{words}" if words else ""
    hint = "the fault is TVM's" + ("; --stage as-is leaves its passes out" if stage else "")
    who = f"TVM {version_of('apache-tvm', '')}".rstrip()
    return f"{who} {how_it_ended(worker.process.returncode)} {where}{said}", hint
