"""Random programs, planned and not: the same bits, and whole calls that hold no more.

Programs have several symbols, Ifs within Ifs, calls of functions that call others, and match_casts on
results whose size depends on data.  Each is built as it is and as planned, and run at three bindings along
every path.  Bytes are what a counting allocator saw, results included, rounded up to 64.  A process takes
some seeds after each other; one that dies costs the seed that it was at, which is told.

    python -m benchmarks.plan_random [--seeds 0..2000] [--json]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click
import tvm

from benchmarks.harness import json_option
from benchmarks.random_modules import random_case
from symalloc.errors import SymallocError
from symalloc.planner.check.validate import PlanRefusedError
from tests.compile_once import compile_kernels_once
from tests.models.measure import compiler, load
from tests.models.planned import Variants, calls, difference, within_limit

BATCH = 50
TARGET = tvm.target.Target({"kind": "llvm", "opt-level": 0})


def examine(seed: int) -> dict[str, Any]:
    """What one program gave: for each call whether bits differ, and the bytes of both."""
    variants = Variants(random_case(seed), TARGET)
    try:
        planned = variants.planned
    except (SymallocError, PlanRefusedError) as error:
        return {"seed": seed, "refused": str(error).splitlines()[0][:200]}
    ours, unplanned = variants.ours, variants.unplanned
    found = []
    for binding in variants.case.bindings:
        for call in calls(variants, binding):
            expected, result = call.on(unplanned), call.on(ours)
            found.append(
                {
                    "binding": dict(binding),
                    "path": dict(call.path),
                    "difference": difference(result, expected),
                    "ours": result.usage.total,
                    "unplanned": expected.usage.total,
                }
            )
    arenas = sum(len(plan.arenas) for plan in planned.plans.values())
    tensors = sum(len(arena.placements) for plan in planned.plans.values() for arena in plan.arenas)
    return {"seed": seed, "arenas": arenas, "tensors": tensors, "calls": found}


def child(first: int, last: int) -> None:
    """Print a line for each seed as it is done."""
    load()
    compile_kernels_once()
    for seed in range(first, last):
        try:
            found = examine(seed)
        except Exception as error:  # TVM raises all kinds
            found = {"seed": seed, "failed": f"{type(error).__name__}: {str(error).strip()[-200:]}"}
        print(json.dumps(found), flush=True)


def in_processes(first: int, last: int) -> Iterator[dict[str, Any]]:
    """What all seeds gave, in order."""
    while first < last:
        command = [
            sys.executable,
            "-m",
            "benchmarks.plan_random",
            "--child",
            f"{first}..{min(last, first + BATCH)}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        yield from rows
        first += len(rows)
        if done.returncode:
            yield {"seed": first, "died": done.returncode}
            first += 1


def over(call: dict[str, Any]) -> bool:
    """Whether a planned call holds more than it may."""
    ours, unplanned = call["ours"], call["unplanned"]
    return bool(ours > within_limit(unplanned))


def missed(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What must hold and does not."""
    for row in rows:
        for kind in ("refused", "failed", "died"):
            if kind in row:
                yield f"seed {row['seed']}: {kind}: {row[kind]}"
        for call in row.get("calls", ()):
            where = f"seed {row['seed']} at {call['binding']} {call['path']}"
            if call["difference"]:
                yield f"{where}: {call['difference']}"
            if over(call):
                yield f"{where}: holds {call['ours']} bytes, {call['unplanned']} without a plan"


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Counts over all programs."""
    made = [call for row in rows for call in row.get("calls", ())]
    more = [call for call in made if call["ours"] > call["unplanned"]]
    ratios = [call["ours"] / call["unplanned"] for call in made if call["unplanned"]]
    tensors = sum(row.get("tensors", 0) for row in rows)
    yield f"{len(rows)} programs, {len(made)} calls, {tensors} planned tensors"
    yield f"  with other bits than the unplanned module {sum(bool(call['difference']) for call in made)}"
    yield f"  that hold more than without a plan        {len(more)}"
    yield f"  by more than 2% and 64 KiB              {sum(map(over, made))}"
    yield f"  held over held without a plan, worst      {max(ratios, default=1):.3f}"
    yield f"  the same, on average                      {sum(ratios) / max(len(ratios), 1):.3f}"


@click.command()
@click.option("--seeds", default="0..2000", show_default=True, help="From the first to before the last.")
@click.option("--child", "is_child", is_flag=True, hidden=True)
@click.argument("range_", required=False, metavar="")
@json_option
def main(seeds: str, is_child: bool, range_: str | None, as_json: bool) -> None:
    """Exit with 1 where bits differ, a call holds more than it may, or a program cannot be planned."""
    first, _, last = (range_ or seeds).partition("..")
    if not (first.isdigit() and last.isdigit()):
        raise click.UsageError(f"--seeds takes FIRST..LAST, not {seeds!r}")
    if is_child:
        child(int(first), int(last))
        return
    if compiler() is None:
        raise click.UsageError("measuring needs a C++ compiler (c++, g++ or clang++) on the PATH")
    rows = list(in_processes(int(first), int(last)))
    short = list(missed(rows))
    if as_json:
        print(json.dumps({"rows": rows, "missed": short}))
    else:
        print("\n".join([*summary(rows), "", *(["missed:", *short] if short else ["nothing missed"])]))
    sys.exit(bool(short))


if __name__ == "__main__":
    main()
