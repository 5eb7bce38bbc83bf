"""Lint modules that others made: at every stage of TVM's pipeline, as TVM plans them and as we do.

    python -m benchmarks.lint_modules [FOLDER] [--jobs 2] [--planned/--no-planned] [--json FILE]

FOLDER holds gzipped JSON modules, those of `benchmarks.record_modules` for example (without it: the imported
models of the tests).  Each is linted in a process of its own, as it stands and behind each pass; then it is
planned by symalloc and the planned module is linted at all stages too.  An error is either a fault of the
module or of TVM, or a false one: each is printed, for a human to tell.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import tvm

import symalloc
from symalloc.errors import SymallocError
from tests.models import imported

SECONDS = 120


def findings(mod: tvm.IRModule, planned: bool) -> dict[str, Any]:
    """The findings of one module as it is, and of what symalloc plans of it."""
    report = symalloc.lint(mod, stage="all")
    found: dict[str, Any] = {"module": [_row(d) for d in report]}
    if planned:
        try:
            found["planned"] = [_row(d) for d in symalloc.lint(symalloc.plan(mod).module, stage="all")]
        except SymallocError as error:
            found["refused"] = str(error).splitlines()[0][:200]
        except Exception as error:
            found["crashed"] = f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}"
    return found


def _row(diagnostic: Any) -> dict[str, str]:
    return {
        "rule": diagnostic.rule,
        "severity": str(diagnostic.severity),
        "stage": diagnostic.stage or "as-is",
        "message": f"{diagnostic.function}: {diagnostic.message}"[:400],
    }


def _in_child(file: Path, planned: bool) -> dict[str, Any]:
    """`findings` of a stored module, in a process of its own; how that ended, where it died."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        status = 1
        try:
            mod = tvm.ir.load_json(gzip.decompress(file.read_bytes()).decode())
            with os.fdopen(writing, "w") as out:
                json.dump(findings(mod, planned), out)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else {"died": os.waitstatus_to_exitcode(status)}


def lint_all(files: list[Path], planned: bool, jobs: int) -> Iterator[tuple[Path, dict[str, Any]]]:
    """What each file gave, in order."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from zip(files, pool.map(lambda file: _in_child(file, planned), files), strict=True)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False)
@click.option("--jobs", default=2, show_default=True, help="Processes at a time.")
@click.option("--planned/--no-planned", default=True, help="Plan each module, and lint the plan.")
@click.option("--json", "output", type=click.Path(path_type=Path), help="Write all findings to this file.")
def main(folder: Path | None, jobs: int, planned: bool, output: Path | None) -> None:
    """Exit with 1 where a lint died."""
    files = sorted((folder or Path(imported.__file__).parent).glob("*.json.gz"))
    counted, outcomes = Counter[tuple[str, str, str]](), Counter[str]()
    everything: dict[str, Any] = {}
    for file, found in lint_all(files, planned, jobs):
        everything[file.name] = found
        for kind in ("died", "refused", "crashed"):
            if kind in found:
                outcomes[kind] += 1
                print(f"{file.name}: {kind}: {found[kind]}", flush=True)
        for where in ("module", "planned"):
            for row in found.get(where, ()):
                counted[where, row["rule"], row["severity"]] += 1
                if row["severity"] == "error":
                    print(
                        f"{file.name} ({where}, {row['stage']}) {row['rule']}: {row['message']}", flush=True
                    )
    print(f"{len(files)} modules; {dict(outcomes)}")
    for (where, rule, severity), count in sorted(counted.items()):
        print(f"  {where:8} {rule} {severity:8} {count:6}")
    if output:
        output.write_text(json.dumps(everything, indent=1))
    sys.exit(outcomes["died"] > 0)


if __name__ == "__main__":
    main()
