"""`symalloc report`: the memory map of a module, or of an allocation trace, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from symalloc.cli.bindings import parse_binding
from symalloc.cli.click_options import (
    MODEL_OPTIONS,
    REPLAY_OPTIONS,
    bind_option,
    given_as,
    model_options,
    path_argument,
    pool_options_of,
    refuse_given,
    replay_options,
    request_of,
    written,
)
from symalloc.cli.output import keep_apart, progress, wrote
from symalloc.linter.diagnostic import Severity
from symalloc.options import choice
from symalloc.session.files import write_file
from symalloc.shown import counted

EPILOG = """\
The page (.html) is one file that loads nothing: sliders for the symbols, what shares which bytes, the floor
and TVM's plan beside ours.  FILE is a module, or an allocation trace, as `symalloc run --trace` writes it.
docs/memory-map.md shows how to read the page.

Exit status: 0; 1 if the linter finds an error (the page shows it), or an allocation does not fit under
--limit; 2 for wrong usage, for a file that cannot
be read or lowered, or for a plan that cannot be proved.
"""

_MODULES_ONLY = ("bind", "compare", *MODEL_OPTIONS)


@click.command(epilog=EPILOG)
@path_argument("file")
@given_as("-o", "--output", kind=written(".html"), required=True, help="The page to write (.html).")
@bind_option("The sizes at which the page begins.", parse=parse_binding)
@given_as(
    "--compare",
    kind=choice(("tvm", "none")),
    default="tvm",
    show_default=True,
    help="Show TVM's own plan in the page, too.",
)
@model_options
@replay_options
def report_command(file: Path, output: Path, bind: dict[str, int], compare: str, **options: Any) -> int:
    """Draw the memory map of the module, or of the allocation trace, in FILE."""
    from symalloc.pool.trace import holds_trace, read_trace, timeline_of
    from symalloc.report.map.page import map_page, plan_data, trace_data
    from symalloc.session.planning import planned_file

    request, pool = request_of(file, options), pool_options_of(options)
    keep_apart("-o", output, [file])
    if file.is_file() and holds_trace(file):
        refuse_given(_MODULES_ONLY, f"{file} is an allocation trace, and these are for modules")
        timeline = timeline_of(read_trace(file), pool)
        data = trace_data(timeline, title=file.name)
        write_file(output, map_page(data).encode())
        wrote(output, "the trace as a page")
        return int(timeline.failed is not None)
    refuse_given(REPLAY_OPTIONS, f"{file} is a module, and these are for allocation traces")
    with progress("planning"):
        planned = planned_file(request, samples=[bind] if bind else [], compare=compare == "tvm")
        reports = planned.file.reports
        page = map_page(plan_data(reports, planned.plan_report, title=file.name))
    write_file(output, page.encode())
    errors = sum(d.severity is Severity.ERROR for d in planned.plan_report)
    found = f", {counted(errors, 'error')} found" if errors else ""
    wrote(output, f"the memory of {counted(len(reports), 'function')}{found}")
    return int(errors > 0)
