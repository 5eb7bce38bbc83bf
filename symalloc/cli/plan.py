"""`symalloc plan`: plan the memory of a module, prove it, show it, write the planned module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from symalloc.cli.bindings import parse_bindings
from symalloc.cli.click_options import (
    bind_option,
    format_option,
    from_table,
    given_as,
    module_options,
    path_argument,
    planner_options,
    request_of,
    written,
)
from symalloc.cli.output import colour_wanted, keep_apart, progress, show, terminal_width, wrote
from symalloc.errors import UsageError
from symalloc.linter.diagnostic import Severity
from symalloc.options import amount, choice
from symalloc.planner.planner_options import PlanOptions
from symalloc.session.config import plan_options

if TYPE_CHECKING:
    from symalloc.session.planning import Planned

EPILOG = """\
docs/planning.md explains the report; `symalloc schema plan` describes the JSON.

Exit status: 0 if every plan is proved (all files are written), 1 if the linter finds an error in the planned
module (other than in a kernel's own buffers) or an arena can exceed --max-arena (nothing is written), 2 for
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
@bind_option('Show the plan at these sizes, such as "n=128,b=2"; may be repeated.', "--sample")
@given_as("--compare", kind=choice(("tvm",)), help="Also show what TVM's own planner reserves.")
@given_as(
    "--fits", kind=amount(), help="Show for which shapes the arenas and the whole call fit, such as 512MiB."
)
@given_as("--max-arena", kind=amount(), help="Fail where arenas can take more within the declared bounds.")
@planner_options
@from_table(PlanOptions, "seed", "certificate")
@module_options
def plan_command(
    file: Path,
    output: Path | None,
    form: str,
    bind: tuple[str, ...],
    compare: str | None,
    fits: int | None,
    max_arena: int | None,
    **options: Any,
) -> int:
    """Plan the memory of the model in FILE, prove the plan, and show it.

    FILE is TVMScript (.py), JSON of TVM (.json, .json.gz), an ONNX model (.onnx), a program of torch.export
    (.pt2), FILE.py:FUNCTION (with --trust), or - for standard input.
    """
    from symalloc.planner.memory_report.function_report import arena_proof, fit_function
    from symalloc.prover.prover import Prover
    from symalloc.report.plan_json import plans_as_json
    from symalloc.report.plan_text import besides_line, exceeding_line, fit_lines, plans_as_text
    from symalloc.report.text import render_text
    from symalloc.session.planning import planned_file

    request = request_of(file, options)
    chosen = plan_options(file, options)
    if output is not None and output == chosen.certificate:
        raise UsageError(f"-o and --certificate both name {output}; one is a file, the other a folder")
    keep_apart("-o", output, [file])
    samples = parse_bindings(bind, "--bind")
    with progress("planning"):
        planned = planned_file(
            request,
            options=chosen,
            form=None if output is None else FORMS[output.suffix],
            samples=samples,
            compare=compare is not None,
        )
    reports, prover = planned.reports, Prover()
    fitting = [] if fits is None else [fit_function(report, fits, prover) for report in reports]
    if form == "json":
        show(plans_as_json(reports, fitting))
    else:
        fitted = "".join(f"{line}\n" for fit in fitting for line in fit_lines(fit))
        show(plans_as_text(reports, width=terminal_width(sys.stdout)) + fitted, plain=False)
    if not planned.report.ok:
        click.echo(
            render_text(
                planned.report,
                width=terminal_width(sys.stderr),
                colour=colour_wanted(sys.stderr),
                quiet=True,
            ),
            err=True,
            nl=False,
            color=True,
        )
    reasons = list(_reasons(planned, file))
    if max_arena is not None and not reasons:
        proofs = [(report.plan.function, arena_proof(report, max_arena, prover)) for report in reports]
        reasons = [exceeding_line(name, proof, max_arena) for name, proof in proofs if not proof.holds]
        for report in reports:
            if report.outcome.planned.not_known is not None:
                click.echo(f"note: {besides_line(report)}", err=True)
    if reasons:
        click.echo("\n".join(f"error: {reason}; nothing is written" for reason in reasons), err=True)
        return 1
    planned.write(output, chosen.certificate)
    if output is not None:
        wrote(output, f"linted, {planned.report.summary.always_valid} constraints proved")
    if chosen.certificate is not None:
        wrote(chosen.certificate, "the proofs")
    return 0


def _reasons(planned: Planned, file: Path) -> Iterator[str]:
    """The reason for which a plan with errors is not written; those of kernels are no fault of a plan."""
    errors = [found for found in planned.report if found.severity is Severity.ERROR and not found.of_kernel]
    if errors and all(found.stage is None for found in errors):
        yield f"the module has these faults before it is planned; `symalloc lint {file}` shows where"
    elif errors:
        yield "the planned module does not lint clean"
