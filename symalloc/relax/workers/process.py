"""One worker process as its parent sees it: how it starts, what it reads, its deadline, its last words."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from symalloc.program.model import Program
from symalloc.program.reading import FileResult, ReadOptions, ReadProblem
from symalloc.program.span import Source
from symalloc.relax.workers.message import Module, Request

_STARTUP_SECONDS = 60.0  # importing TVM takes one or two; a loaded machine takes longer
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[2]); "
    "from symalloc.relax.workers.worker import main; main(int(sys.argv[1]))"
)
_QUOTED_LINES = 3


@dataclass(slots=True, eq=False)
class Reading:
    """What is known of one file so far."""

    file: str
    programs: list[Program] = field(default_factory=list)
    problems: list[ReadProblem] = field(default_factory=list)
    source: Source | None = None
    done: bool = False
    module: Module | None = None  # the last that was begun
    deaths: int = 0

    @property
    def begun(self) -> int:
        """How many modules were begun."""
        return self.module.number + 1 if self.module else 0

    def result(self) -> FileResult:
        """What was found."""
        return FileResult(
            file=self.file,
            programs=tuple(self.programs),
            problems=tuple(self.problems),
            source=self.source,
        )


class WorkerProcess:
    """A child process, and the file that it is busy with."""

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
        self.reading: Reading | None = None
        self.step = "starting TVM for"
        self.ready = False
        self.deadline = float("inf")
        self.printed_before = 0  # bytes, for other files

    def begin(self, reading: Reading, options: ReadOptions) -> None:
        """Ask for a file; file names are relative to the folder that this process is in now."""
        self.reading = reading
        self.printed_before = os.fstat(self.printed.fileno()).st_size
        if self.ready:
            self.step = "reading"
        self.deadline = time.monotonic() + (options.timeout if self.ready else _STARTUP_SECONDS)
        self.pipe.send(Request(reading.file, options, reading.begun, _folder()))

    def enters(self, step: str, options: ReadOptions) -> None:
        """Note what it does now; the time for a file counts from its first sign of life."""
        if not self.ready:
            self.deadline = time.monotonic() + options.timeout
        self.step, self.ready = step, True

    @property
    def doing(self) -> str:
        """What it does now, and with which file."""
        return f"{self.step} {Path(self.reading.file).name}" if self.reading else ""

    @property
    def has_died_idle(self) -> bool:
        """Whether it is gone, and no file is to blame."""
        return self.reading is None and self.process.poll() is not None

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        self.printed.close()

    def last_words(self) -> str:
        """The last lines that the process printed while it read this file."""
        self.printed.seek(self.printed_before)
        lines = self.printed.read().decode(errors="replace").splitlines()
        said = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("File ")]
        return "\n".join(said[-_QUOTED_LINES:])


def _folder() -> str | None:
    """The current folder; None where it was deleted."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return None
