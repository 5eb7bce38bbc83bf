"""Workspace of random operator calls: what `symalloc plan` reads against what the kernels really take.

`python -m benchmarks.workspace_calls` makes random calls of Relax operators (random shapes, half of the
extents symbolic, random dtypes), lowers each by TVM's default and by the target's own pipeline, reads the
workspace of its kernels, and runs every fourth in a process in which a counter stands for TVM's pool.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import click
import numpy as np
import tvm
from tvm import relax

from benchmarks.random_calls import RandomCall, random_calls
from symalloc.analysis.interprocedural import analyse
from symalloc.planner.memory_report.non_arena import non_arena_memory
from symalloc.program.reading import PipelineName
from symalloc.relax.extract import extract
from symalloc.relax.files.plan_file import kernel_scratch
from symalloc.relax.passes.pipeline import finishing_pipeline, lower
from tests.models.execution import random_inputs

_COUNTER = Path(__file__).with_suffix(".cc")
_PIPELINES: tuple[PipelineName, ...] = ("default", "target")


@click.command()
@click.option("--calls", default=500, show_default=True, help="Random calls.")
@click.option("--seed", default=0, show_default=True, help="Of the calls.")
@click.option("--every", default=4, show_default=True, help="Run one in so many calls.")
@click.option("--verbose", is_flag=True, help="Name each call that is not read, or not right.")
def main(calls: int, seed: int, every: int, verbose: bool) -> None:
    """Count the calls whose workspace is read, and those that are run and take just that."""
    if not is_counted():
        sys.exit(run_counted("benchmarks.workspace_calls", sys.argv[1:]))
    found: Counter[str] = Counter()
    for number, call in enumerate(islice(random_calls(seed), calls)):
        for pipeline in _PIPELINES:
            for outcome in _outcomes(call, pipeline, run=number % every == 0):
                word, _, rest = outcome.partition(":")
                found[word] += 1
                if verbose and rest:
                    click.echo(f"{number} {call.name} {pipeline} {dict(call.binding)}: {outcome}")
    for word, count in sorted(found.items()):
        click.echo(f"{word:28} {count}")


def is_counted() -> bool:
    """Return whether the counter stands in front of TVM's pool in this process."""
    return hasattr(ctypes.CDLL(None), "symalloc_most_workspace")


def most_workspace() -> int:
    """Return the most bytes that kernels held at one moment since the last call of this function."""
    most = ctypes.CDLL(None).symalloc_most_workspace
    most.restype = ctypes.c_uint64
    return int(most())


def run_counted(program: str, arguments: list[str]) -> int:
    """Run a program where the counter stands in front of TVM's pool, and return its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "workspace_calls.so"
        compiling = ["c++", "-O2", "-shared", "-fPIC", "-std=c++17", "-o", str(library), str(_COUNTER)]
        subprocess.run(compiling, check=True)
        command = [sys.executable, "-m", program, *arguments]
        return subprocess.run(command, env={**os.environ, "LD_PRELOAD": str(library)}, check=False).returncode


def _outcomes(call: RandomCall, pipeline: PipelineName, *, run: bool) -> list[str]:
    """What there is to count of one call: a word, and behind a colon what it was."""
    try:
        module = lower(call.module, "llvm", pipeline=pipeline)
    except Exception as error:
        return [f"TVM cannot lower it: {str(error).strip()[-90:]!r}"]
    program = extract(module, name="call", stage="CallTIRRewrite")
    scratch = kernel_scratch(module, program.kernels, "llvm")
    problems = [f"unknown: {one.problem}" for one in scratch.values() if one.problem is not None]
    if problems:
        return problems
    uses = non_arena_memory(program, analyse(program)["main"], scratch).kernels
    expected = max((use.nbytes.evaluate(call.binding) for use in uses if use.nbytes is not None), default=0)
    return ["read", *([_in_a_child(lambda: _measured(call, module, expected))] if run else [])]


def _in_a_child(job: Callable[[], str]) -> str:
    """What `job` says, which may end the process it is done in."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, job().encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    status = os.waitpid(child, 0)[1]
    return said or f"TVM cannot run it: ended by signal {os.WTERMSIG(status)}"


def _measured(call: RandomCall, module: tvm.IRModule, expected: int) -> str:
    """Run the call, and say whether its kernels took the `expected` bytes."""
    try:
        executable = relax.build(module, "llvm", relax_pipeline=finishing_pipeline("llvm"))
        machine = relax.VirtualMachine(executable, tvm.cpu())
        arguments = [_zero(a) for a in random_inputs(call.module["main"], call.binding)]
        most_workspace()
        machine["main"](*arguments)
    except Exception as error:
        return f"TVM cannot run it: {str(error).strip()[-90:]!r}"
    taken = most_workspace()
    if taken == expected:
        return "run, and right" if taken else "run, and right (nothing)"
    return f"run, and wrong: {taken} B, not {expected} B"


def _zero(argument: object) -> object:
    """Zeros instead of random values: an index that every tensor has."""
    if not isinstance(argument, tvm.runtime.Tensor):
        return argument
    return tvm.runtime.tensor(np.zeros(argument.shape, argument.numpy().dtype))


if __name__ == "__main__":
    main()
