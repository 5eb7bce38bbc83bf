"""Runs a job in a process of its own, so that a crash of TVM or of generated code is an error message here.

Imports no TVM: the child does.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from symalloc.relax.files.result import RunError
from symalloc.relax.workers.child_process import prepare_child

_QUOTED_LINES = 3
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from symalloc.relax.run.isolated import serve; serve()"


class CrashError(RunError):
    """The child died; `said` is all that stood on its standard error stream."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


@dataclass(frozen=True, slots=True)
class _Failed:
    """What the job raised, as text; `expected`: it is meant for the user, and no fault of ours."""

    message: str
    expected: bool = True


def isolated(job: str, *arguments: Any, what: str, timeout: float | None = None, **named: Any) -> Any:
    """What the function `job`, written `module:name`, returns when it is called in a child process.

    Arguments and result must pickle.  Raises RunError with the text of the RunError that the job raised,
    or where the child takes longer than `timeout` seconds, CrashError where it dies; `what` says what the
    child was doing ("running the module").
    """
    request = pickle.dumps((job, arguments, named))
    with tempfile.TemporaryFile() as complaints:
        # -P: the folder symalloc is started in, which may hold anything, stays off the import path
        command = [sys.executable, "-P", "-c", _PROGRAM, str(Path(__file__).parents[2])]
        try:
            child = subprocess.run(
                command,
                input=request,
                stdout=subprocess.PIPE,
                stderr=complaints,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RunError(f"{what} took longer than {timeout:g} seconds") from None
        complaints.seek(0)
        said = complaints.read().decode(errors="replace")
    if child.returncode != 0 or not child.stdout:
        raise CrashError(_death(what, child.returncode, said), said)
    answer = pickle.loads(child.stdout)  # our own child wrote it
    if isinstance(answer, _Failed):
        raise RunError(answer.message) if answer.expected else RuntimeError(answer.message)
    return answer


def serve() -> None:
    """The child's side: one job from standard input, its answer to standard output."""
    prepare_child()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever TVM prints must not end up in the answer
    job, arguments, named = pickle.load(sys.stdin.buffer)
    module, name = job.split(":")
    try:
        answer = getattr(import_module(module), name)(*arguments, **named)
    except RunError as error:
        answer = _Failed(str(error))
    except MemoryError:
        answer = _Failed("it takes more memory than there is")
    except Exception as error:
        answer = _Failed(f"{type(error).__name__}: {error}", expected=False)
    with answers:
        pickle.dump(answer, answers)


def _death(what: str, status: int, said: str) -> str:
    if status < 0:
        how = f"TVM, or the code that it made, crashed ({signal.Signals(-status).name})"
    else:
        how = f"the process ended with status {status}"
    lines = [line for line in said.splitlines() if line.strip()]
    quoted = "".join(f"\n  {line.strip()[:200]}" for line in lines[-_QUOTED_LINES:])
    return f"{how} while {what}{quoted}"
