"""What a timeline says that a call holds, against a counting allocator: random programs and the zoo.

Each module is built without a plan behind our passes and behind TVM's alone, and with our plan, and run at
each of its bindings along every path.  A figure is wrong where less is said than was held, and where more is
said although no size and no packed function's result is in doubt.  Sizes that become known during a call are
taken from the run.  A process takes some modules after each other.

    python -m benchmarks.timeline [--seeds 0..1000] [--zoo/--no-zoo] [MODEL ...] [--json]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from benchmarks.harness import json_option
from benchmarks.random_modules import random_case
from benchmarks.zoo_models import GROUPS, case_named
from tests.compile_once import compile_kernels_once
from tests.models.measure import compiler, load
from tests.models.planned import Case
from tests.models.timeline.held import faults, sides

BATCH = 50


def examine(name: str) -> dict[str, Any]:
    """The calls of one module that were compared, and what was wrong; `name` is a seed or a model's."""
    case: Case = random_case(int(name)) if name.isdigit() else case_named(name)
    module, found = case.build(), []
    for side in sides(module, case.pipeline):
        found += faults(side, module, {case.function: case.bindings}, case.paths)
    return {"name": name, "compared": len(found), "wrong": [fault for fault in found if fault is not None]}


def child(names: Sequence[str]) -> None:
    """Print a line for each module as it is done."""
    load()
    compile_kernels_once()
    for name in names:
        try:
            found = examine(name)
        except Exception as error:  # TVM raises all kinds
            found = {"name": name, "failed": f"{type(error).__name__}: {str(error).strip()[-200:]}"}
        print(json.dumps(found), flush=True)


def in_processes(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What all modules gave, in order; one that ends its process costs itself alone."""
    while names:
        some = names[:BATCH]
        command = [sys.executable, "-m", "benchmarks.timeline", "--child", *some]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        yield from rows
        names = names[len(rows) :]
        if done.returncode and names:
            yield {"name": names[0], "failed": f"the process ended with {done.returncode}"}
            names = names[1:]


@click.command()
@click.option("--seeds", default="0..1000", show_default=True, help="From the first to before the last.")
@click.option("--zoo/--no-zoo", default=True, help="Take the models of the zoo, too.")
@click.option("--child", "is_child", is_flag=True, hidden=True)
@click.argument("models", nargs=-1)
@json_option
def main(seeds: str, zoo: bool, is_child: bool, models: tuple[str, ...], as_json: bool) -> None:
    """Exit with 1 where a figure is wrong."""
    if is_child:
        child(models)
        return
    if compiler() is None:
        raise click.UsageError("measuring needs a C++ compiler (c++, g++ or clang++) on the PATH")
    first, _, last = seeds.partition("..")
    if not (first.isdigit() and last.isdigit()):
        raise click.UsageError(f"--seeds takes FIRST..LAST, not {seeds!r}")
    names = list(models) or [str(seed) for seed in range(int(first), int(last))]
    if zoo and not models:
        names += [name for group in GROUPS.values() for name in group]
    rows = list(in_processes(names))
    wrong = [fault for row in rows for fault in row.get("wrong", ())]
    if as_json:
        print(json.dumps({"rows": rows}))
    else:
        failed = [row for row in rows if "failed" in row]
        compared = sum(row.get("compared", 0) for row in rows)
        print(f"{len(rows)} modules, {compared} figures compared, {len(wrong)} wrong")
        print("\n".join([*wrong, *(f"{row['name']} failed: {row['failed']}" for row in failed)]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
