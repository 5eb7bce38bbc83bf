"""How long an allocation takes while another thread gives 3 GiB of the same pool back.

    python -m benchmarks.pool_native [--patterns]    (a part of it)

Allocations of 64 KiB to 8 MiB, none from a cache, the first byte of each written in between.  They are
compared with the same allocations beside a thread that only runs, in one process and in turns: on a busy
machine the system takes a processor away for many milliseconds, which says nothing about the pool.  The third
figure, which the limit is for, leaves out the time in which the allocating thread could have run and had no
processor, or had one that stood still: of those that never slept, which who waits for a lock does, only the
time that they ran counts.  Behind it stands for how much of it the thread ran.  The rest it waited for a
lock, whose holder may have had no processor.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import click

MEBIBYTES, MOST = 3072, 2.0  # ms
PAGES = {"pages of the system": "0", "huge pages": "1"}
CASES = ("it trims", "it only runs")


def missed_waits(program: Path, rounds: int) -> list[str]:
    """Show how long allocations take; return what is missed, with `program` symalloc_wait."""
    missed = []
    click.echo(f"an allocation while another thread trims {MEBIBYTES} MiB, {rounds} times, in ms")
    for title, huge in PAGES.items():
        done = subprocess.run(
            [program, str(MEBIBYTES), huge, str(rounds)], check=True, capture_output=True, text=True
        )
        lines = ([float(x) for x in line.split()] for line in done.stdout.splitlines())
        found = dict(zip(CASES, lines, strict=True))
        for case, (worst, p999, own, ran, count) in found.items():
            click.echo(
                f"  {title:<20} {case:<13} p99.9 {p999:>7.3f}  worst {worst:>7.3f}  "
                f"but for want of a processor {own:>7.3f} (ran {ran:.3f}) of {count:.0f}"
            )
        waited = found["it trims"][2]
        if waited > max(MOST, found["it only runs"][2]):
            missed.append(f"an allocation beside a trim of {title}: {waited:.2f} ms")
    return missed
