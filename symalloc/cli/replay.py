"""`symalloc replay`: what a pool, and others beside it, would reserve for recorded traces."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import click

from symalloc.cli.click_options import format_option, path_argument, pool_options_of, replay_options
from symalloc.cli.output import progress, show, step
from symalloc.errors import UsageError
from symalloc.session.files import write_file

if TYPE_CHECKING:
    from symalloc.pool.exports import Exporter
    from symalloc.pool.replaying import Replayed

EPILOG = """\
Reserved counts the bytes of pages that hold memory; live counts the bytes that the program asked for.

An export shows symalloc's pool with the given options: perfetto (JSON for ui.perfetto.dev and
chrome://tracing) or prometheus (text).

Exit status: 0; 1 if an allocation did not fit under --limit; 2 for wrong usage or a trace that cannot be
read.
"""


@click.command(epilog=EPILOG)
@path_argument("traces", nargs=-1, required=True, metavar="TRACE...")
@replay_options
@click.option(
    "--export",
    "exports",
    multiple=True,
    metavar="FORM=FILE",
    help="Also write the TRACE as perfetto or prometheus; may be repeated.",
)
@format_option("the figures")
def replay_command(
    traces: tuple[Path, ...],
    exports: tuple[str, ...],
    form: str,
    **given: str | None,
) -> int:
    """Replay allocation traces on several allocators, and compare the memory that they reserve.

    They are symalloc's pool, one that keeps exact sizes (TVM's pooled allocator), and best fit (PyTorch's).
    """
    from symalloc.pool.replaying import POLICIES, replay, timeline_of
    from symalloc.pool.trace import read_trace
    from symalloc.report.pool_use import replays_as_json, replays_as_text

    options = pool_options_of(given)
    files = [_parsed(export) for export in exports]
    if exports and len(traces) != 1:
        raise UsageError(f"--export takes one trace, not {len(traces)}")
    read = [read_trace(path) for path in traces]
    results: list[Replayed] = []
    with progress("replaying"):
        for trace, name in product(read, POLICIES):
            step(len(results), len(read) * len(POLICIES), name)
            results.append(replay(trace, name, options))
    if files:
        timeline = timeline_of(read[0], options)
        for make, file in files:
            write_file(file, make(timeline))
    show((replays_as_json if form == "json" else replays_as_text)(results), plain=form == "json")
    return int(any(r.out_of_memory for r in results))


def _parsed(export: str) -> tuple[Exporter, Path]:
    """The exporter that is asked for, and the file it writes."""
    from symalloc.pool.exports import exporter

    form, equals, file = export.partition("=")
    make = exporter(form)
    if not equals or not file:
        raise UsageError(f"--export {export}: write FORM=FILE, such as {form}=FILE")
    return make, Path(file)
