"""`symalloc plan`: plan the memory of a module, prove it, show it, write the planned module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from symalloc.cli.click_options import (
    bind_option,
    format_option,
    from_table,
    given_as,
    model_options,
    path_argument,
    request_of,
    written,
)
from symalloc.cli.output import colour_wanted, keep_apart, progress, show, terminal_width, wrote
from symalloc.errors import UsageError
from symalloc.linter.diagnostic import Severity
from symalloc.linter.lint_options import LintOptions, parse_assumptions
from symalloc.options import amount, choice
from symalloc.planner.memory_plan import PlanOptions

if TYPE_CHECKING:
    from symalloc.session.planning import Planned

EPILOG = """\
docs/planning.md explains the report; `symalloc schema plan` describes the JSON.

Exit status: 0 if every plan is proved (all files are written), 1 if the linter finds an error in the planned
module (other than in a kernel's own buffers), a call can exceed --budget, or an arena --max-arena, within the
declared bounds, at --bind, where --assume holds (nothing is written), 2 for
wrong usage, for a module that cannot be read or lowered, or for a plan that cannot be proved.
"""

FORMS: dict[str, Literal["json", "script"]] = {".json": "json", ".py": "script"}


@click.command(epilog=EPILOG)
@path_argument("file")
@given_as(
    "-o",
    "--output",
    kind=written(*FORMS),
    help="Write the planned module here: TVMScript (.py) or JSON (.json).",
)
@format_option("the plans")
@bind_option(
    'Show the plan at these sizes, such as "n=128,b=2"; may be repeated, but not with --fits, --budget and '
    "--max-arena, which ask at them, and for which some sizes may be left out.",
    "--sample",
)
@given_as("--compare", kind=choice(("tvm",)), help="Also show what TVM's own planner reserves.")
@given_as(
    "--fits",
    kind=amount(),
    help="Show for which shapes it fits, such as 512MiB: arenas, a call, workspace, weights and inputs.",
)
@given_as("--budget", kind=amount(), help="Fail, and show the same, where a whole call can take more.")
@from_table(LintOptions, "assume")
@from_table(PlanOptions, "seed", "certificate")
@model_options
def plan_command(
    file: Path,
    output: Path | None,
    form: str,
    bind: list[dict[str, int]],
    compare: str | None,
    fits: int | None,
    budget: int | None,
    assume: tuple[str, ...],
    **options: Any,
) -> int:
    """Plan the memory of the model in FILE, prove the plan, and show it.

    FILE is TVMScript (.py), JSON of TVM (.json, .json.gz), an ONNX model (.onnx), a program of torch.export
    (.pt2), FILE.py:FUNCTION (with --trust), or - for standard input.
    """
    from symalloc.planner.memory_report.deployment import Asked, fit_functions
    from symalloc.prover.prover import Prover
    from symalloc.report.plan_json import plans_as_json
    from symalloc.report.plan_text import besides_line, exceeding_line, fit_lines, plans_as_text
    from symalloc.report.text import render_text
    from symalloc.session.planning import planned_file

    request = request_of(file, options)
    folder = request.plan.certificate
    if output is not None and output == folder:
        raise UsageError(f"-o and --certificate both name {output}; one is a file, the other a folder")
    keep_apart("-o", output, [file])
    assumed = parse_assumptions(assume)
    limits = (fits, budget, request.plan.max_arena)
    asked = any(limit is not None for limit in limits)
    if assume and not asked:
        raise UsageError("--assume would have no effect: it goes with --fits, --budget or --max-arena")
    if asked and len(bind) > 1:
        raise UsageError("--fits, --budget and --max-arena ask at one --bind")
    at = next(iter(bind), {})
    with progress("planning"):
        planned = planned_file(
            replace(request, plan=replace(request.plan, sizes=at if asked else {})),
            form=None if output is None else FORMS[output.suffix],
            samples=bind,
            partial=asked,
            compare=compare is not None,
        )
    reports, prover = planned.file.reports, Prover()
    fitting, held, reserved = (
        []
        if limit is None
        else fit_functions(planned.file.deployment, Asked(limit=limit, values=at, assume=assumed), prover)
        for limit in limits
    )
    if form == "json":
        show(plans_as_json(reports, fitting or held))
    else:
        fitted = "".join(f"{line}\n" for fit in (*fitting, *held) for line in fit_lines(fit))
        show(plans_as_text(reports, width=terminal_width(sys.stdout)) + fitted, plain=False)
    if not planned.report.ok:
        click.echo(
            render_text(
                planned.report, width=terminal_width(sys.stderr), colour=colour_wanted(sys.stderr), quiet=True
            ),
            err=True,
            nl=False,
            color=True,
        )
    reasons = list(_reasons(planned, file))
    if not reasons:
        parts = [(f"a call of `{fit.function}`", fit.call) for fit in held]
        parts += [(f"`{fit.function}`: its arenas", fit.arenas) for fit in reserved if fit.arenas is not None]
        reasons = [exceeding_line(what, fit) for what, fit in parts if not fit.holds]
        for report in reports if reserved else ():
            if report.outcome.planned.not_known is not None:
                click.echo(f"note: {besides_line(report)}", err=True)
    if reasons:
        click.echo("\n".join(f"error: {reason}; nothing is written" for reason in reasons), err=True)
        return 1
    planned.write(output, folder)
    if output is not None:
        wrote(output, f"linted, {planned.report.summary.always_valid} constraints proved")
    if folder is not None:
        wrote(folder, "the proofs")
    return 0


def _reasons(planned: Planned, file: Path) -> Iterator[str]:
    """The reason for which a plan with errors is not written; those of kernels are no fault of a plan."""
    errors = [found for found in planned.report if found.severity is Severity.ERROR and not found.of_kernel]
    if errors and all(found.stage is None for found in errors):
        yield f"the module has these faults before it is planned; `symalloc lint {file}` shows where"
    elif errors:
        yield "the planned module does not lint clean"
