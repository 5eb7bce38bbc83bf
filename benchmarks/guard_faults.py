"""Random faults of programs on a pool in guard mode: each must end by SIGSEGV at once, having named a tensor.

    python -m benchmarks.guard_faults [--count 1000] [--seed 0]

Over- and underruns, uses after a free, and frees of blocks that the program has protected, by reads and
writes of 1 to 8 threads at once while others allocate and free; with faulthandler and TVM's own handler
of the signal, or without.  Seconds are from the first fault to the end of the process; TVM's handler
takes 0.3 of them, and on a busy machine the 0.7 that the pool leaves it.  Exit status 1 where a process has
not ended so within a second.
"""

from __future__ import annotations

import sys
from statistics import median

import click

from symalloc.native.library import load_library
from tests.pool.guard_faults import HANDLERS, FaultEnd, FaultPlan, run_fault

LONGEST = 1.0  # seconds


@click.command()
@click.option("--count", default=1000, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(count: int, seed: int) -> None:
    load_library()
    ends: list[FaultEnd] = []
    wrong = 0
    for number in range(seed, seed + count):
        end = run_fault(FaultPlan.random(number))
        ends.append(end)
        why = end.fault or (f"{end.seconds:.2f} s" if end.seconds > LONGEST else "")
        if why:
            wrong += 1
            click.echo(f"{end.plan}: {why}\n{end.said[:400]}")
    click.echo(f"{count - wrong} of {count} faults ended the process within a second, the tensor named")
    for handler in HANDLERS:
        seconds = [e.seconds for e in ends if e.plan.handler == handler]
        if seconds:
            click.echo(f"  handlers: {handler:<20} median {median(seconds):.3f} s, most {max(seconds):.3f} s")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
