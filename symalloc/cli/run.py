"""`symalloc run`: run a module at given sizes, planned or not, on a pool or not, and say what it used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from symalloc.cli.bindings import bindings, parse_binding, parse_sweeps
from symalloc.cli.click_options import (
    PLANNER_OPTIONS,
    bind_option,
    format_option,
    from_table,
    given_as,
    model_options,
    path_argument,
    refuse_given,
    request_of,
    written,
)
from symalloc.cli.output import keep_apart, progress, show
from symalloc.errors import UsageError
from symalloc.options import amount, choice, options_of
from symalloc.planner.memory_report.runs import RunOptions

EPILOG = """\
In the table, storages is the number of allocations from the pool in a call, live the most bytes in use at one
time, and reserved the most bytes that were backed by pages.

Exit status: 0; 1 if --check finds a difference or the pool refuses something (no memory under --limit, a
tensor outside its storage, an overrun that --guard sees); 2 for wrong usage or for a module that cannot be
read, planned, built or run.
"""


@click.command(epilog=EPILOG)
@path_argument("file")
@bind_option("The values of symbols, such as n=128,b=2; may be repeated.", parse=parse_binding)
@click.option(
    "--sweep",
    multiple=True,
    metavar="NAME=VALUES",
    help="Run at each of these values: n=1..512, n=16..512:16, n=1,8,64..128; may be repeated, for all "
    "combinations.",
)
@from_table(RunOptions, "repeat", "plan", "check", "function", "seed", "workers")
@given_as(
    "--compare",
    kind=choice(("tvm",)),
    help="Also make each call with TVM's own plan on TVM's pooled allocator, and compare.",
)
@click.option("--pool", is_flag=True, help="Take all memory from symalloc's pool.")
@given_as(
    "--limit", kind=amount(), help="The most bytes that the pool may reserve, such as 64MiB; implies --pool."
)
@click.option(
    "--guard",
    is_flag=True,
    help="Protect the edges of every tensor and name a tensor that is overrun; implies --pool.",
)
@given_as(
    "--trace", kind=written(), help="Write a trace of all allocations for `symalloc replay`; implies --pool."
)
@given_as("--profile", kind=written(), help="Write the seconds of each kernel here, for `symalloc graph`.")
@format_option("the figures")
@model_options
def run_command(file: Path, bind: dict[str, int], sweep: tuple[str, ...], **options: Any) -> int:
    """Run the model in FILE on the CPU on random arguments; show the memory and time it takes.

    FILE is TVMScript (.py), JSON of TVM (.json, .json.gz), an ONNX model (.onnx), a program of torch.export
    (.pt2), FILE.py:FUNCTION (with --trust), or - for standard input.
    """
    from symalloc.report.document import as_json
    from symalloc.report.run_text import run_as_json, run_as_text
    from symalloc.session.planning import run_file

    if options["plan"] != "symalloc":
        refuse_given(PLANNER_OPTIONS, f"--plan {options['plan']} runs without symalloc's planner")
    at = bindings(bind, parse_sweeps(sweep))
    trace, form, profile = (options.pop(name) for name in ("trace", "form", "profile"))
    keep_apart("--trace", trace, [file])
    keep_apart("--profile", profile, [file])
    if profile is not None and len(at) > 1:
        raise UsageError("--profile is for the kernels of one call; give one --bind")
    given = {name: options.pop(name) for name in (*options_of(RunOptions), "pool", "limit", "guard")}
    given["pool"] |= given["guard"] or trace is not None or given["limit"] is not None
    compare, record = options.pop("compare") is not None, trace is not None
    how = RunOptions(compare=compare, record=record, profile=profile is not None, **given)
    request = request_of(file, options)
    with progress("running"):
        report = run_file(request, at, how)
    if trace is not None and report.trace is not None:
        show(report.trace.decode(), trace)
    if profile is not None and not report.refused:
        show(as_json({"binding": at[0], "kernels": report.kernels}), profile)
    show((run_as_json if form == "json" else run_as_text)(report), plain=form == "json")
    return 0 if report.ok else 1
