"""Reading files in child processes: which worker reads what, deaths and deadlines.

A worker that dies takes with it only what it was doing: what it found before is kept, the death becomes a
problem, a new worker reads the rest of the file.  Imports no TVM.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import wait
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from symalloc.program.reading import (
    FileResult,
    Message,
    ModuleBegun,
    ReadingStep,
    ReadOptions,
    ReadProblem,
    result_of,
)
from symalloc.relax.workers.child import (
    ChildProcess,
    Job,
    JobFailure,
    JobResult,
    LogEntry,
    how_it_ended,
    last_lines,
    level_of_log,
)

Watch: TypeAlias = Callable[[int, int, str], None]  # files read, files in all, what is done now

_LOG = logging.getLogger("symalloc")
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
class FileReading:
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

    def report(self, message: str, *, hint: str | None, stage: str | None) -> None:
        """Note a problem with the module that was begun."""
        name = self.module.name if self.module else None
        self.told.append(
            ReadProblem(file=self.file, message=message, hint=hint, module=name, stage=stage, passing=True)
        )

    def result(self) -> FileResult:
        """The programs and problems found."""
        return result_of(self.file, self.told)


class Worker(ChildProcess):
    """A child process, and the file that it is busy with.

    `ready`: it has imported TVM.  `printed_before` counts the bytes that it printed for other files.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reading: FileReading | None = None
        self.step = "starting TVM for"
        self.ready = False
        self.deadline = float("inf")
        self.printed_before = 0

    def begin(self, reading: FileReading, options: ReadOptions) -> None:
        """Ask for a file; file names are relative to the folder that this process is in now."""
        self.reading = reading
        self.printed_before = os.fstat(self.printed.fileno()).st_size
        if self.ready:
            self.step = "reading"
        self.deadline = time.monotonic() + (options.timeout if self.ready else _STARTUP_SECONDS)
        arguments = (Path(reading.file), options, reading.begun, reading.data)
        self.pipe.send(Job(_READ_JOB, arguments, tells=True, folder=_folder(), log_level=level_of_log()))

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

    @property
    def has_died_idle(self) -> bool:
        """Return whether it is gone, and no file is to blame."""
        return self.reading is None and self.process.poll() is not None

    def last_words(self) -> str:
        """The last lines that the process printed while it read this file."""
        lines = self.said(self.printed_before).splitlines()
        return "\n".join(last_lines(line for line in lines if not line.lstrip().startswith("File ")))


def _folder() -> str | None:
    """The current folder; None where it was deleted."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return None


class WorkerPool:
    """Worker processes that stay for the next reading: to start one costs a second, for TVM to be imported.

    Use it in a `with` statement: the processes are gone when that is left, whatever leaves it.
    """

    def __init__(self, size: int | None = None) -> None:
        """At most `size` processes, None for one per CPU; none is started yet."""
        self._size = size if size is not None else os.cpu_count() or 1
        self._workers: list[Worker] = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start a process now, so that it imports TVM while something else is done here."""
        if not self._workers:
            self._workers.append(Worker())

    def read(
        self,
        files: Sequence[Path],
        options: ReadOptions,
        watch: Watch | None = None,
        contents: Mapping[Path, bytes] = MappingProxyType({}),
    ) -> Iterator[FileResult]:
        """Read `files`, each once; results come in their order, each as soon as it can.

        When the iterator is closed or left by an exception, what is still being read is given up.  `watch`
        is told how many of how many files are read and what is done now, at least twice a second.
        `contents` are those of files that need not exist, such as STDIN.
        """
        readings = [FileReading(str(file), contents.get(file)) for file in dict.fromkeys(files)]
        batch = _Batch(self._workers, self._size, readings, options, watch)
        try:
            yield from batch.results()
        finally:
            batch.give_up()

    def close(self) -> None:
        """End all processes."""
        while self._workers:
            self._workers.pop().stop()


class _Batch:
    """Files to be read by workers, which it starts, buries and leaves idle for the next batch."""

    def __init__(
        self,
        workers: list[Worker],
        size: int,
        readings: Sequence[FileReading],
        options: ReadOptions,
        watch: Watch | None,
    ) -> None:
        self._workers = workers  # shared with the pool; Invariant: those of `_busy` are among them
        self._busy: list[Worker] = []
        self._size = max(1, min(size, len(readings)))
        self._options = options
        self._watch = watch
        self._readings = readings
        self._waiting = deque(self._readings)
        self._begun = time.monotonic()

    def results(self) -> Iterator[FileResult]:
        """The results, file by file."""
        for reading in self._readings:
            while not reading.done:
                self._feed()
                self._listen()
                self._tell()
            self._feed()  # they read on while the caller works on this one
            result = reading.result()
            _LOG.debug(
                "read %s: %d programs, %d problems", result.file, len(result.programs), len(result.problems)
            )
            yield result

    def give_up(self) -> None:
        """End the processes that are still reading."""
        for worker in self._busy:
            self._workers.remove(worker)
            worker.stop()
        self._busy.clear()

    def _tell(self) -> None:
        if self._watch is not None and self._busy:
            done = sum(reading.done for reading in self._readings)
            self._watch(done, len(self._readings), self._busy[0].doing)

    def _feed(self) -> None:
        while self._waiting:
            worker = self._idle()
            if worker is None:
                return
            self._begin(worker, self._waiting.popleft())

    def _idle(self) -> Worker | None:
        """A worker with nothing to do, started if need be; None where one has to be waited for."""
        for worker in [worker for worker in self._workers if worker.has_died_idle]:
            self._workers.remove(worker)
            worker.stop()
        idle = next((worker for worker in self._workers if worker.reading is None), None)
        if idle is None and len(self._workers) < self._size and self._may_grow():
            idle = Worker()
            self._workers.append(idle)
        return idle

    def _may_grow(self) -> bool:
        """Return whether another process is worth its start: not where a running one is done sooner."""
        warm = any(worker.ready for worker in self._workers)
        return not warm or time.monotonic() - self._begun > _WORTH_A_WORKER

    def _begin(self, worker: Worker, reading: FileReading) -> None:
        self._busy.append(worker)
        try:
            worker.begin(reading, self._options)
        except (BrokenPipeError, ConnectionResetError):
            self._bury(worker)

    def _listen(self) -> None:
        """Wait until a worker says something, or for a moment."""
        soonest = min((worker.deadline for worker in self._busy), default=0.0) - time.monotonic()
        ready = wait([worker.pipe for worker in self._busy], max(0.0, min(soonest, _MOMENT)))
        for worker in tuple(self._busy):
            if worker.pipe in ready:
                self._receive(worker)
            elif worker.deadline <= time.monotonic():
                self._bury(worker, overdue=True)

    def _receive(self, worker: Worker) -> None:
        try:
            message: Message | LogEntry | JobResult | JobFailure = worker.pipe.recv()
        except (EOFError, OSError):
            self._bury(worker)
            return
        reading = worker.reading
        if reading is None:
            return
        match message:
            case LogEntry():
                message.pass_on()
            case ReadingStep(text=text):
                worker.enters(text, self._options)
            case JobResult() | JobFailure():
                self._finish(worker, reading, message)
            case _:
                reading.told.append(message)

    def _finish(self, worker: Worker, reading: FileReading, message: JobResult | JobFailure) -> None:
        reading.done = True
        self._busy.remove(worker)
        if isinstance(message, JobFailure):
            _report_failure(worker, reading, message)
            if not message.expected:
                self._requeue(reading)
        worker.reading = None

    def _bury(self, worker: Worker, *, overdue: bool = False) -> None:
        """Say why `worker` is gone, and have the rest of its file read by another."""
        self._workers.remove(worker)
        self._busy.remove(worker)
        reading = worker.reading
        if not overdue:
            worker.process.wait()
        _LOG.debug(
            "the worker is gone that was %s%s", worker.doing or "idle", ": out of time" if overdue else ""
        )
        if reading is not None:
            _report_death(worker, reading, self._options, overdue=overdue)
            self._requeue(reading)
        worker.stop()

    def _requeue(self, reading: FileReading) -> None:
        """Have the modules read that were not begun."""
        reading.deaths += 1
        nothing_left = reading.module is None or reading.begun == reading.module.count
        reading.done = nothing_left or reading.deaths == _MAX_DEATHS
        if not reading.done:
            self._waiting.appendleft(reading)


def _report_failure(worker: Worker, reading: FileReading, failure: JobFailure) -> None:
    """The job raised: there was too little memory, or it is a fault of ours."""
    if failure.expected:
        message = f"reading {failure.message}"
        reading.told.append(ReadProblem(file=reading.file, message=message, stage=worker.stage, passing=True))
        return
    message = f"symalloc failed while {worker.doing}: {failure.message}"
    reading.report(message, hint="this is a fault of symalloc; please report it", stage=worker.stage)


def _report_death(worker: Worker, reading: FileReading, options: ReadOptions, *, overdue: bool) -> None:
    """The process died, or took too long."""
    stage = worker.stage
    where = f"in {stage} while lowering {Path(reading.file).name}" if stage else f"while {worker.doing}"
    if overdue:
        reading.report(f"gave up after {options.timeout:g} s {where}", hint=_TIMEOUT_HINT, stage=stage)
        return
    words = worker.last_words()
    said = f"; it said:\n{words}" if words else ""
    hint = "the fault is TVM's" + ("; --stage as-is leaves its passes out" if stage else "")
    reading.report(
        f"{_tvm()} {how_it_ended(worker.process.returncode)} {where}{said}", hint=hint, stage=stage
    )


def _tvm() -> str:
    try:
        return f"TVM {version('apache-tvm')}"
    except PackageNotFoundError:
        return "TVM"
