"""`symalloc diff`: compare two plans, or the plans of two modules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from symalloc.cli.click_options import (
    bind_option,
    format_option,
    given_as,
    model_options,
    path_argument,
    request_of,
    written,
)
from symalloc.cli.output import keep_apart, progress, show
from symalloc.errors import UsageError

EPILOG = """\
docs/pipelines.md shows an example; `symalloc schema diff` describes the JSON.

A and B are compared at every shape without empty dimensions within the bounds that B declares.  What is not
proved is compared at samples; where these show no growth it is undecided.

Exit status: 0 if it is proved that no function takes more, 1 if a call of some function takes more at some
shape, cannot be compared, or was not decided, 2 for wrong usage, for a file that cannot be read, or for a
module that cannot be planned.
"""


@click.command(epilog=EPILOG)
@path_argument("before", metavar="A")
@path_argument("after", metavar="B")
@format_option("the difference")
@given_as("-o", "--output", kind=written(), help="Write to this file.")
@bind_option('Compare at these sizes, such as "n=128,b=2"; may be repeated.')
@model_options
def diff_command(
    before: Path, after: Path, form: str, output: Path | None, bind: list[dict[str, int]], **options: Any
) -> int:
    """Compare what two plans of a model take: A before, B after.

    Each is the JSON of `symalloc plan --format json`, or a model, which is planned: TVMScript (.py), JSON of
    TVM, ONNX (.onnx), torch.export (.pt2), FILE.py:FUNCTION (with --trust), or - for standard input.
    """
    from symalloc.report.document import as_json
    from symalloc.report.plan_diff import plan_diff_text
    from symalloc.session.planning import diff_plans, plans_in

    if str(before) == str(after) == "-":
        raise UsageError("standard input can be one of the two, not both")
    keep_apart("-o", output, (before, after))
    first, second = request_of(before, dict(options)), request_of(after, options)
    with progress("planning"):
        old, new = plans_in(replace(first, plan=second.plan)), plans_in(second)
    diff = diff_plans(old, new, bind)
    show(as_json(diff) if form == "json" else plan_diff_text(diff), output, plain=form == "json")
    return int(diff.grew)
