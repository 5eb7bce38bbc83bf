"""`symalloc graph`: the dependency graph of a planned module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from symalloc.cli.click_options import model_options, path_argument, request_of
from symalloc.cli.output import progress, show


@click.command(epilog="docs/order.md explains the graph.  Exit status: 0, or 2 as of `symalloc plan`.")
@path_argument("file")
@model_options
def graph_command(file: Path, **options: Any) -> None:
    """Show, as JSON, which calls of the model in FILE wait for which, once it is planned.

    Edges are data, memory, effects, and fences, where the plan has put two tensors at the same bytes.
    """
    from symalloc.report.document import as_json
    from symalloc.session.planning import graph_file

    request = request_of(file, options)
    with progress("planning"):
        found = graph_file(request)
    show(as_json(found))
