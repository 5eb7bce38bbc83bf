"""`symalloc graph`: the dependency graph of a planned module, and calls on several lanes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from symalloc.cli.bindings import parse_binding
from symalloc.cli.click_options import bind_option, given_as, model_options, path_argument, request_of
from symalloc.cli.output import progress, show
from symalloc.errors import UsageError
from symalloc.options import PATH, amount, choice


@click.command(epilog="docs/order.md explains it.  Exit status: 0; 1 if no lane fits --budget; 2 for errors.")
@path_argument("file")
@given_as("--format", "form", kind=choice(("json", "text")), default="json", help="text: lanes as a table.")
@given_as("--times", kind=PATH, help="Seconds of kernels, from `run --profile`: show calls on 1, 2, … lanes.")
@bind_option("The sizes of these calls; by default those of the times.", parse=parse_binding)
@given_as("--budget", kind=amount(), help="Say how many lanes fit these bytes, such as 512MiB.")
@model_options
def graph_command(
    file: Path, form: str, times: Path | None, bind: dict[str, int], budget: int | None, **options: Any
) -> int:
    """Show, as JSON, which calls of the model in FILE wait for which, once it is planned.

    Edges are data, memory, effects, and fences, where the plan has put two tensors at the same bytes.
    """
    from symalloc.report.document import as_json
    from symalloc.report.plan_text import lane_lines
    from symalloc.session.planning import graph_file, lanes_request

    if times is None and form == "text":
        raise UsageError("--format text is for lanes; give the --times of kernels")
    request, wanted = request_of(file, options), lanes_request(times, bind, budget)
    with progress("planning"):
        found = graph_file(request, wanted)
    show(as_json(found) if form == "json" else "".join(lane_lines(found)), plain=form == "json")
    return int(any(not one.lanes[0].fits for one in found.functions if one.lanes))
