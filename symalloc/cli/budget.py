"""`symalloc budget`: weights, states and calls against the memory of a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from symalloc.cli.click_options import format_option, from_table, model_options, path_argument, request_of
from symalloc.cli.output import progress, show
from symalloc.options import options_of
from symalloc.planner.memory_report.device_budget import BudgetOptions

EPILOG = """\
docs/budget.md goes from a model to the settings of a server; `symalloc schema budget` describes the JSON.

Exit status: 0 if it fits, or fits exactly when the condition holds that is printed, 1 if it does not fit or
is not proved to, 2 for wrong usage, or for a module that cannot be read, lowered or planned.
"""


@click.command(epilog=EPILOG)
@path_argument("file")
@from_table(BudgetOptions, *options_of(BudgetOptions))
@format_option("the budget")
@model_options
def budget_command(file: Path, form: str, **options: Any) -> int:
    """Say whether all that the model in FILE takes fits a device, and how much of what does.

    That is: weights, what functions create and a server keeps (KV caches, recurrent states), the largest of
    the calls with its inputs and results, results of the call before, workspace, constants, and --extra.
    """
    from symalloc.report.budget_text import budget_text
    from symalloc.report.document import as_json
    from symalloc.session.planning import budget_file

    wanted = BudgetOptions(**{name: options.pop(name) for name in options_of(BudgetOptions)})
    request = request_of(file, options)
    with progress("planning"):
        found = budget_file(request, wanted)
    show(as_json(found) if form == "json" else budget_text(found), plain=form == "json")
    conditional = found.total is None and found.condition is not None
    return int(not (found.fits or conditional))
