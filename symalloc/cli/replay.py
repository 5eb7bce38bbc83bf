"""`symalloc replay`: what a pool, and TVM's beside it, would reserve for recorded traces."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import click

from symalloc.cli.click_options import format_option, path_argument, pool_options_of, replay_options
from symalloc.cli.output import progress, show, step

if TYPE_CHECKING:
    from symalloc.pool.trace import Replayed

EPILOG = """\
Reserved counts the bytes of pages that hold memory; live counts the bytes that the program asked for.

Exit status: 0; 1 if an allocation did not fit under --limit; 2 for wrong usage or a trace that cannot be
read.
"""


@click.command(epilog=EPILOG)
@path_argument("traces", nargs=-1, required=True, metavar="TRACE...")
@replay_options
@format_option("the figures")
def replay_command(traces: tuple[Path, ...], form: str, **given: str | None) -> int:
    """Replay allocation traces on two allocators, and compare the memory that they reserve.

    They are symalloc's pool, and one that keeps exact sizes, as TVM's pooled allocator does.
    """
    from symalloc.pool.trace import POLICIES, read_trace, replay
    from symalloc.report.pool_use import replays_as_json, replays_as_text

    options = pool_options_of(given)
    read = [read_trace(path) for path in traces]
    results: list[Replayed] = []
    with progress("replaying"):
        for trace, name in product(read, POLICIES):
            step(len(results), len(read) * len(POLICIES), name)
            results.append(replay(trace, name, options))
    show((replays_as_json if form == "json" else replays_as_text)(results), plain=form == "json")
    return int(any(r.out_of_memory for r in results))
