"""The child's side of reading: a process that reads files and tells its parent what it finds, message by
message.

Started by `worker_pool` with a pipe; everything that TVM prints goes to the standard error it was started
with.
"""

from __future__ import annotations

import os
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from symalloc.program.model import Program
from symalloc.program.reading import ReadProblem
from symalloc.program.span import Source
from symalloc.relax.workers.child_process import prepare_child
from symalloc.relax.workers.message import Done, Message, Module, Request, Step


class _PipeSink:
    """Sends what is found to the parent as it is found."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def send(self, message: Message) -> None:
        """Send one message."""
        self._pipe.send(message)

    def step(self, text: str) -> None:
        """Say what is about to be done."""
        self.send(Step(text))

    def module(self, name: str, number: int, count: int) -> None:
        """Say which module is about to be read."""
        self.send(Module(name, number, count))

    def source(self, source: Source) -> None:
        """Hand on the text of the file."""
        self.send(source)

    def program(self, program: Program) -> None:
        """Hand on a program."""
        self.send(program)

    def problem(self, problem: ReadProblem) -> None:
        """Hand on a problem."""
        self.send(problem)


def main(descriptor: int) -> None:
    """Serve requests from the pipe with that descriptor until it is closed."""
    prepare_child()
    os.dup2(2, 1)  # the pipe is the only way to the parent
    sink = _PipeSink(Connection(descriptor))
    pipe = sink._pipe
    from symalloc.relax.workers.programs import read_path

    while True:
        try:
            request: Request = pipe.recv()
        except EOFError:
            return
        _enter(request.folder)
        try:
            read_path(Path(request.file), request.options, sink, request.skip)
        except MemoryError:
            sink.problem(ReadProblem(file=request.file, message="reading it takes more memory than there is"))
        sink.send(Done())


def _enter(folder: str | None) -> None:
    """Be where the parent is; where that cannot be, the file is not found, and said to be missing."""
    if folder is not None:
        with suppress(OSError):
            os.chdir(folder)
