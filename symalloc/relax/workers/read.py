"""Reading Relax modules: from files in worker processes, or from an IRModule in this one.

This module imports no TVM; `read_module` does when it is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from symalloc.program.reading import FileResult, InputError, ReadOptions, ReadProblem, Stage
from symalloc.relax.read.paths import expand
from symalloc.relax.workers.pool import WorkerPool

if TYPE_CHECKING:
    from tvm import IRModule

__all__ = [
    "FileResult",
    "InputError",
    "ReadOptions",
    "ReadProblem",
    "Stage",
    "expand",
    "read_files",
    "read_module",
]


def read_files(files: Sequence[Path], options: ReadOptions = ReadOptions()) -> Iterator[FileResult]:  # noqa: B008
    """Read `files` in worker processes, one result for each, in their order, as they come.

    What is wrong with a file, up to TVM crashing on it, is a problem of its result; nothing is raised for it.
    """
    with WorkerPool(options.workers) as pool:
        yield from pool.read(files, options)


def read_module(mod: IRModule, options: ReadOptions = ReadOptions(), *, name: str = "module") -> FileResult:  # noqa: B008
    """Read an IRModule in this process.  A module on which TVM crashes takes the process with it.

    The result's file is `<name>`; its programs have spans into the script that TVM prints, unless
    options.locate is False.
    """
    from symalloc.relax.workers.programs import Collected, programs_of

    sink = Collected()
    programs_of(mod, name, f"<{name}>", None, options, sink)
    return FileResult(file=f"<{name}>", programs=tuple(sink.programs), problems=tuple(sink.problems))
