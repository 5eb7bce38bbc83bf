"""`symalloc plan`: plan the memory of a module, prove it, show it, write the planned module."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click

from symalloc.cli.bindings import parse_binding
from symalloc.cli.click_options import (
    format_option,
    from_table,
    given_as,
    module_options,
    path_argument,
    planner_options,
    request_of,
    written,
)
from symalloc.cli.output import keep_apart, terminal_width
from symalloc.errors import UsageError
from symalloc.linter.diagnostic import Severity
from symalloc.options import amount, choice
from symalloc.planner.planner_options import PlanOptions

EPILOG = """\
docs/planning.md explains the report; `symalloc schema plan` describes the JSON.

Exit status: 0 if every plan is proved (all files are written), 1 if the linter finds an error in the planned
module or an arena can exceed --max-arena (nothing is written), 2 for wrong usage, for a module that cannot be
read or lowered, or for a plan that cannot be proved.
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
@click.option(
    "--sample",
    "samples",
    multiple=True,
    metavar="NAME=N,…",
    help='Show the plan at these sizes, such as "n=128,b=2"; may be repeated.',
)
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
    samples: tuple[str, ...],
    compare: str | None,
    fits: int | None,
    max_arena: int | None,
    **options: Any,
) -> int:
    """Plan the memory of the model in FILE, prove the plan, and show it.

    FILE is TVMScript (.py), JSON of TVM (.json, .json.gz), an ONNX model (.onnx), a program of torch.export
    (.pt2), FILE.py:FUNCTION (with --trust), or - for standard input.
    """
    from symalloc.planner.memory_report.fitting import arena_proof, fit_function
    from symalloc.prover.prover import Prover
    from symalloc.report.plan_json import plans_as_json
    from symalloc.report.plan_text import exceeding_line, fit_lines, plans_as_text
    from symalloc.report.text import render_text
    from symalloc.session.planning import planned_file

    request = request_of(file, options)
    chosen = PlanOptions(**options)
    if output is not None and output == chosen.certificate:
        raise UsageError(f"-o and --certificate both name {output}; one is a file, the other a folder")
    keep_apart("-o", output, [file])
    planned = planned_file(
        request,
        options=chosen,
        form=None if output is None else FORMS[output.suffix],
        samples=[parse_binding([text], "--sample") for text in samples],
        compare=compare is not None,
    )
    reports, prover = planned.reports, Prover()
    fitting = [] if fits is None else [fit_function(report, fits, prover) for report in reports]
    if form == "json":
        click.echo(plans_as_json(reports, fitting), nl=False)
    else:
        click.echo(plans_as_text(reports, width=terminal_width(sys.stdout)), nl=False)
        for line in (line for fit in fitting for line in fit_lines(fit)):
            click.echo(line)
    if not planned.report.ok:
        click.echo(
            render_text(planned.report, width=terminal_width(sys.stderr), quiet=True), err=True, nl=False
        )
    errors = [found for found in planned.report if found.severity is Severity.ERROR]
    if errors:
        before = all(found.stage is None for found in errors)
        return _refused([_faults_of_module(file) if before else "the planned module does not lint clean"])
    exceeding = []
    if max_arena is not None:
        proofs = [(report.plan.function, arena_proof(report, max_arena, prover)) for report in reports]
        exceeding = [exceeding_line(name, proof, max_arena) for name, proof in proofs if not proof.holds]
    if exceeding:
        return _refused(exceeding)
    planned.write(output, chosen.certificate)
    if form == "text":
        _say_written(output, chosen.certificate, planned.report.summary.always_valid)
    return 0


def _say_written(output: Path | None, certificate: Path | None, proved: int) -> None:
    if output is not None or certificate is not None:
        click.echo()
    if output is not None:
        click.echo(f"wrote {output}: linted, {proved} constraints proved")
    if certificate is not None:
        click.echo(f"wrote the proofs to {certificate}")


def _faults_of_module(file: Path) -> str:
    return f"the module has these faults before it is planned; `symalloc lint {file}` shows where"


def _refused(reasons: Sequence[str]) -> int:
    """Say why nothing is written; return the exit status."""
    click.echo("\n".join(f"error: {reason}; nothing is written" for reason in reasons), err=True)
    return 1
