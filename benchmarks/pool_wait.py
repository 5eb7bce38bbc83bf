"""How long an allocation takes while another thread gives 3 GiB of the same pool back.

    python -m benchmarks.pool_native [--patterns]    (a part of it)

Allocations of 64 KiB to 8 MiB, none from a cache, the first byte of each written.  They are compared with
the same allocations beside a thread that only runs, in the same process and in turns: on a busy machine the
system takes a processor away for many milliseconds, which says nothing about the pool.  The last column
leaves out the time in which the allocating thread itself could have run and had no processor.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import click

MEBIBYTES, MOST = 3072, 2.0  # ms
PAGES = {"pages of the system": "0", "huge pages": "1"}


def missed_waits(program: Path, rounds: int) -> list[str]:
    """Show how long allocations take; return what is missed, with `program` symalloc_wait."""
    missed = []
    click.echo(f"an allocation while another thread trims {MEBIBYTES} MiB, {rounds} times, in ms")
    for title, huge in PAGES.items():
        done = subprocess.run(
            [program, str(MEBIBYTES), huge, str(rounds)], check=True, capture_output=True, text=True
        )
        trimming, running = ([float(x) for x in line.split()] for line in done.stdout.splitlines())
        for name, (worst, p999, own, count) in {"trims": trimming, "only runs": running}.items():
            click.echo(
                f"  {title:<20} it {name:<10} p99.9 {p999:>7.3f}  worst {worst:>7.3f}  "
                f"but for want of a processor {own:>7.3f}  of {count:.0f}"
            )
        if trimming[2] > max(MOST, running[2]):
            missed.append(f"an allocation beside a trim of {title}: {trimming[2]:.2f} ms")
    return missed
