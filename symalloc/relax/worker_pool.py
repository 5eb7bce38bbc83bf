"""The parent's side of reading: worker processes, their deaths and their deadlines.

A worker that dies takes with it only what it was doing: what it found before is kept, the death becomes a
problem, a new worker reads the rest of the file.  Imports no TVM.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO

from symalloc.program.model import Program
from symalloc.program.span import Source
from symalloc.relax.read_result import FileResult, Problem, ReadOptions
from symalloc.relax.worker_message import Done, Message, Module, Request, Step

__all__ = ["read_in_workers"]

_STARTUP_SECONDS = 60.0  # importing TVM takes one or two; a loaded machine takes longer
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[2]); from symalloc.relax.worker import main; main(int(sys.argv[1]))"
)
_QUOTED_LINES = 3
_TIMEOUT_HINT = (
    "TVM parses some 600 lines of TVMScript a second, and loads the JSON of tvm.ir.save_json faster; "
    "ReadOptions.timeout allows more seconds for one file"
)
_MAX_DEATHS = 20  # per file: modules that each kill a worker


def read_in_workers(files: Sequence[Path], options: ReadOptions, workers: int) -> Iterator[FileResult]:
    """Read `files` in at most `workers` processes; results come in the order of `files`, each as soon as it
    can.

    The processes are gone when the iterator is exhausted, closed, or left by an exception such as
    KeyboardInterrupt.
    """
    pool = _Pool(files, options, workers)
    try:
        for file in files:
            yield pool.result(file)
    finally:
        pool.close()


@dataclass(slots=True)
class _Reading:
    """What is known of one file so far."""

    file: str
    programs: list[Program] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    source: Source | None = None
    done: bool = False
    module: Module | None = None  # the last that was begun
    deaths: int = 0

    @property
    def begun(self) -> int:
        """How many modules were begun."""
        return self.module.number + 1 if self.module else 0

    def result(self) -> FileResult:
        return FileResult(
            file=self.file,
            programs=tuple(self.programs),
            problems=tuple(self.problems),
            source=self.source,
        )


class _Worker:
    """One child process and the file it is reading."""

    def __init__(self) -> None:
        ours, theirs = Pipe()
        self.pipe: Connection = ours
        self.printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in stop)
        package = str(Path(__file__).parents[2])
        with theirs:
            # -P: the folder symalloc is started in, which may hold anything, stays off the import path
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno()), package],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.printed,
                pass_fds=[theirs.fileno()],
            )
        self.reading: _Reading | None = None
        self.step = "starting TVM for"
        self.ready = False
        self.deadline = float("inf")

    def begin(self, reading: _Reading, options: ReadOptions) -> None:
        """Ask for a file."""
        self.reading = reading
        self.deadline = time.monotonic() + (options.timeout if self.ready else _STARTUP_SECONDS)
        self.pipe.send(Request(reading.file, options, reading.begun))

    def enters(self, step: str, options: ReadOptions) -> None:
        """Note what it does now; the time for a file counts from its first sign of life."""
        if not self.ready:
            self.deadline = time.monotonic() + options.timeout
        self.step, self.ready = step, True

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        self.printed.close()

    def last_words(self) -> str:
        """The last lines that the process printed."""
        self.printed.seek(0)
        lines = self.printed.read().decode(errors="replace").splitlines()
        said = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("File ")]
        return "\n".join(said[-_QUOTED_LINES:])


class _Pool:
    """Workers that share a queue of files."""

    def __init__(self, files: Sequence[Path], options: ReadOptions, workers: int) -> None:
        self._options = options
        self._size = max(1, min(workers, len(files)))
        self._readings = {file: _Reading(str(file)) for file in files}
        self._waiting = deque(self._readings.values())
        self._workers: list[_Worker] = []

    def result(self, file: Path) -> FileResult:
        """Wait until `file` is read."""
        reading = self._readings[file]
        while not reading.done:
            self._feed()
            self._listen()
        return self._readings[file].result()

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.stop()
        self._workers.clear()

    def _feed(self) -> None:
        while self._waiting:
            idle = next((worker for worker in self._workers if worker.reading is None), None)
            if idle is None:
                if len(self._workers) == self._size:
                    return
                idle = _Worker()
                self._workers.append(idle)
            self._begin(idle, self._waiting.popleft())

    def _begin(self, worker: _Worker, reading: _Reading) -> None:
        try:
            worker.begin(reading, self._options)
        except (BrokenPipeError, ConnectionResetError):
            self._bury(worker)

    def _listen(self) -> None:
        busy = [worker for worker in self._workers if worker.reading is not None]
        soonest = min(worker.deadline for worker in busy)
        ready = wait([worker.pipe for worker in busy], max(0.0, soonest - time.monotonic()))
        for worker in busy:
            if worker.pipe in ready:
                self._receive(worker)
            elif worker.deadline <= time.monotonic():
                self._bury(worker, overdue=True)

    def _receive(self, worker: _Worker) -> None:
        try:
            message: Message = worker.pipe.recv()
        except (EOFError, OSError):
            self._bury(worker)
            return
        reading = worker.reading
        if reading is None:
            return
        match message:
            case Step(text=text):
                worker.enters(text, self._options)
            case Module():
                reading.module = message
            case Source():
                reading.source = message
            case Program():
                reading.programs.append(message)
            case Problem():
                reading.problems.append(message)
            case Done():
                reading.done, worker.reading = True, None

    def _bury(self, worker: _Worker, *, overdue: bool = False) -> None:
        """Say why `worker` is gone, and have the rest of its file read by another."""
        self._workers.remove(worker)
        reading = worker.reading
        if not overdue:
            worker.process.wait()
        if reading is not None:
            reading.problems.append(_death(worker, reading, self._options, overdue))
            reading.deaths += 1
            self._requeue(reading)
        worker.stop()

    def _requeue(self, reading: _Reading) -> None:
        nothing_left = reading.module is None or reading.begun == reading.module.count
        if nothing_left or reading.deaths == _MAX_DEATHS:
            reading.done = True
        else:
            self._waiting.appendleft(reading)


def _death(worker: _Worker, reading: _Reading, options: ReadOptions, overdue: bool) -> Problem:
    name = _pass_name(worker.step)
    doing = f"in {name} while lowering" if name else f"while {worker.step}"
    where = f"{doing} {Path(reading.file).name}"
    if overdue:
        message = f"gave up after {options.timeout:g} s {where}"
        hint = _TIMEOUT_HINT
    else:
        words = worker.last_words()
        message = f"{_tvm()} {_how(worker.process.returncode)} {where}" + (
            f"; it said:\n{words}" if words else ""
        )
        hint = "the fault is TVM's" + ("; --stage as-is leaves its passes out" if name else "")
    return Problem(
        file=reading.file,
        message=message,
        hint=hint,
        module=reading.module.name if reading.module else None,
        stage=name,
    )


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"crashed ({signal.Signals(-code).name})"
    except ValueError:
        return f"crashed (signal {-code})"


def _pass_name(step: str) -> str | None:
    return step if step[:1].isupper() and " " not in step else None


def _tvm() -> str:
    try:
        return f"TVM {version('apache-tvm')}"
    except PackageNotFoundError:
        return "TVM"
