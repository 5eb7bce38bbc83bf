"""The memory and the time of a prefill computed in pieces, beside the same in one.

`python -m benchmarks.chunks` plans two layers of a small decoder (64 wide, two heads, so that the scores of
attention are nearly all of an arena, as in models with more of both) for prompts of 4,096 tokens, and lets
its arena take shares of what it takes.  Results are compared bit for bit.  Times are of calls in turns,
of this process and by the clock, as shares of the call in one piece.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from time import perf_counter, process_time
from typing import Any

import click
import tvm
from tvm import relax

from benchmarks.harness import in_turns, print_table, rounds_option
from symalloc.planner.memory_plan import PlanOptions
from symalloc.relax.passes.pipeline import finishing_pipeline, lower
from symalloc.relax.passes.plan_pass import PlannedModule, plan_lowered
from tests.models.execution import random_inputs
from tests.models.zoo import llama

DECODER = llama.Shape(layers=2, hidden=64, heads=2, kv_heads=2, inner=160, vocabulary=96)
SHARES = (0.5, 0.25, 0.125)
COLUMNS = {
    "share": ">6.3f",
    "pieces": ">50",
    "arena": ">12,",
    "of": ">6.3f",
    "cpu": ">6.3f",
    "wall": ">6.3f",
    "bits": ">6",
}


@click.command()
@click.option("--tokens", default=4096, show_default=True, help="The length of the prompt.")
@rounds_option
def main(tokens: int, rounds: int) -> None:
    """Measure a prefill in pieces; exit status 1 where a result differs in a bit, or a share is not met."""
    at, target = {"b": 1, "n": tokens}, tvm.target.Target("llvm")
    lowered = lower(llama.decoder(DECODER), target)
    whole = plan_lowered(lowered, options=PlanOptions(shrink="safe"), target=target)
    most = _arenas(whole, at)
    plans = {1.0: whole}
    for share in SHARES:
        options = PlanOptions(shrink="safe", max_arena=int(share * most), chunks=64, sizes=at)
        plans[share] = plan_lowered(lowered, options=options, target=target)
    arguments = random_inputs(lowered["forward"], at)
    calls = {share: _function(plan.module, target) for share, plan in plans.items()}
    results = {share: call(*arguments).numpy().tobytes() for share, call in calls.items()}
    times = in_turns(rounds, {share: partial(_seconds, call, arguments) for share, call in calls.items()})
    wrong = False

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal wrong
        for share, plan in plans.items():
            same, arena = results[share] == results[1.0], _arenas(plan, at)
            wrong = wrong or not same or arena > share * most
            taken = zip(*(zip(*times[one], strict=True) for one in (share, 1.0)), strict=True)
            cpu, wall = (median(a / b for a, b in zip(*pair, strict=True)) for pair in taken)
            yield {
                "share": share,
                "pieces": plan.plans["forward"].pieces.partition(":")[0],
                "arena": arena,
                "of": arena / most,
                "cpu": cpu,
                "wall": wall,
                "bits": "same" if same else "OTHER",
            }

    print_table(COLUMNS, rows())
    print(f"a call in one piece: {median(wall for _, wall in times[1.0]):.2f} s")
    sys.exit(wrong)


def _arenas(plan: PlannedModule, at: dict[str, int]) -> int:
    return sum(arena.size.evaluate(at) for arena in plan.plans["forward"].arenas)


def _function(module: tvm.IRModule, target: tvm.target.Target) -> Callable[..., Any]:
    built = relax.build(module, target, relax_pipeline=finishing_pipeline(target))
    found: Callable[..., Any] = relax.VirtualMachine(built, tvm.cpu())["forward"]
    return found


def _seconds(call: Callable[..., Any], arguments: list[Any]) -> tuple[float, float]:
    """The seconds of a call, of this process and by the clock."""
    begun = process_time(), perf_counter()
    call(*arguments)
    return process_time() - begun[0], perf_counter() - begun[1]


if __name__ == "__main__":
    main()
