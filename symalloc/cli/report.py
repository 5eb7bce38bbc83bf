"""`symalloc report`: the memory map of a module as a page or a picture, or of a trace as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from symalloc.cli.bindings import parse_binding
from symalloc.cli.click_options import (
    MODULE_OPTIONS,
    PLANNER_OPTIONS,
    REPLAY_OPTIONS,
    bind_option,
    given_as,
    module_options,
    path_argument,
    planner_options,
    pool_options_of,
    refuse_given,
    replay_options,
    request_of,
    written,
)
from symalloc.cli.output import keep_apart, progress, wrote
from symalloc.errors import UsageError
from symalloc.linter.diagnostic import Severity
from symalloc.options import choice
from symalloc.session.config import plan_options
from symalloc.session.files import write_file
from symalloc.shown import counted

if TYPE_CHECKING:
    from symalloc.session.planning import Planned

EPILOG = """\
The page (.html) is one file that loads nothing: sliders for the symbols, what shares which bytes, the floor
and TVM's plan beside ours.  A picture (.svg, .png) shows one function at one binding.  FILE is a module, or
an allocation trace, as `symalloc run --trace` writes it, for a page.  docs/memory-map.md shows how to read
them.

Exit status: 0; 1 if the linter finds an error (the page shows it), or an allocation does not fit under
--limit; 2 for wrong usage, for a file that cannot
be read or lowered, or for a plan that cannot be proved.
"""

FORMS = (".html", ".svg", ".png")
_MODULES_ONLY = ("bind", "function", "compare", *PLANNER_OPTIONS, *MODULE_OPTIONS)


@click.command(epilog=EPILOG)
@path_argument("file")
@given_as(
    "-o",
    "--output",
    kind=written(*FORMS),
    required=True,
    help="The file to write: a page (.html) or a picture (.svg, .png).",
)
@bind_option("The sizes that a picture shows, and at which a page begins.")
@click.option("--function", help="The function that a picture shows, if the module has several.")
@given_as(
    "--compare",
    kind=choice(("tvm", "none")),
    default="tvm",
    show_default=True,
    help="Show TVM's own plan in the page, too.",
)
@planner_options
@module_options
@replay_options
def report_command(
    file: Path, output: Path, bind: tuple[str, ...], function: str | None, compare: str, **options: Any
) -> int:
    """Draw the memory map of the module, or of the allocation trace, in FILE."""
    from symalloc.pool.replaying import timeline_of
    from symalloc.pool.trace import holds_trace, read_trace
    from symalloc.report.map.page import map_page, require_png, trace_data
    from symalloc.session.planning import planned_file

    request, pool = request_of(file, options), pool_options_of(options)
    if output.suffix == ".png":
        require_png()
    keep_apart("-o", output, [file])
    binding = parse_binding(bind, "--bind")
    if file.is_file() and holds_trace(file):
        refuse_given(_MODULES_ONLY, f"{file} is an allocation trace, and these are for modules")
        if output.suffix != ".html":
            raise UsageError(f"{output}: an allocation trace is drawn as a page (.html)")
        timeline = timeline_of(read_trace(file), pool)
        data = trace_data(timeline, title=file.name)
        write_file(output, map_page(data).encode())
        wrote(output, "the trace as a page")
        return int(timeline.failed is not None)
    refuse_given(REPLAY_OPTIONS, f"{file} is a module, and these are for allocation traces")
    if output.suffix == ".html":
        refuse_given(["function"], "a page shows every function")
    else:
        refuse_given(["compare"], "a picture shows one plan")
    with progress("planning"):
        planned = planned_file(
            request,
            options=plan_options(file, options),
            samples=[binding] if binding else [],
            compare=compare == "tvm" and output.suffix == ".html",
        )
        drawn = _module(planned, file, function, output.suffix)
    write_file(output, drawn)
    errors = sum(d.severity is Severity.ERROR for d in planned.plan_report)
    found = f", {counted(errors, 'error')} found" if errors else ""
    wrote(output, f"the memory of {counted(len(planned.reports), 'function')}{found}")
    return int(errors > 0)


def _module(planned: Planned, file: Path, function: str | None, form: str) -> bytes:
    from symalloc.report.map.page import as_png, map_page, plan_data
    from symalloc.report.map.picture import picture, plan_scene

    if form == ".html":
        return map_page(plan_data(planned.reports, planned.plan_report, title=file.name)).encode()
    reports = {report.plan.function: report for report in planned.reports}
    if function is not None and function not in reports:
        raise UsageError(f"{file} has no function `{function}`; it has {', '.join(reports)}")
    report = reports[function] if function else max(planned.reports, key=lambda r: len(r.placements))
    drawn = picture(plan_scene(report.plan, report.shown_first, report.origins))
    return as_png(drawn) if form == ".png" else drawn.encode()
