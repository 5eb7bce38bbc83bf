"""`symalloc plan`: plan the memory of a module, prove it, show it, write the planned module."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from symalloc.cli.bindings import parse_binding
from symalloc.cli.click_options import (
    PathName,
    format_option,
    from_table,
    given_as,
    module_options,
    planner_options,
    request_of,
)
from symalloc.cli.output import keep_apart, terminal_width
from symalloc.errors import UsageError
from symalloc.linter.diagnostic import Report, Severity
from symalloc.options import amount, choice
from symalloc.planner.planner_options import PlanOptions

if TYPE_CHECKING:
    from symalloc.planner.memory_report.fitting import FunctionFit
    from symalloc.planner.memory_report.function_report import FunctionReport

EPILOG = """\
docs/planning.md explains the report; `symalloc schema plan` describes the JSON.

Exit status: 0 if every plan is proved (all files are written), 1 if the linter finds an error in the planned
module or an arena can exceed --max-arena (nothing is written), 2 for wrong usage, for a module that cannot be
read or lowered, or for a plan that cannot be proved.
"""

FORMS: dict[str, Literal["json", "script"]] = {".json": "json", ".py": "script"}


@click.command(epilog=EPILOG)
@click.argument("file", type=PathName(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=PathName(dir_okay=False, path_type=Path),
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
@given_as("--compare", choice(("tvm",)), help="Also show what TVM's own planner reserves.")
@given_as(
    "--fits",
    amount(),
    help="Show for which shapes the arenas and the whole call fit, such as 512MiB.",
)
@given_as("--max-arena", amount(), help="Fail where arenas can take more within the declared bounds.")
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
    from symalloc.report.fit_text import fit_lines
    from symalloc.report.plan_json import plans_as_json
    from symalloc.report.plan_text import plans_as_text
    from symalloc.session.planning import planned_file

    request = request_of(file, options)
    chosen = PlanOptions(**options)
    written = _form(output)
    if output is not None and output == chosen.certificate:
        raise UsageError(f"-o and --certificate both name {output}; one is a file, the other a folder")
    keep_apart("-o", output, [file])
    planned = planned_file(
        request,
        options=chosen,
        form=written,
        samples=[parse_binding([text], "--sample") for text in samples],
        compare=compare is not None,
    )
    fitting = _fits(planned.reports, fits)
    if form == "json":
        text = plans_as_json(planned.reports, fitting)
    else:
        text = plans_as_text(planned.reports, width=terminal_width(sys.stdout))
    click.echo(text, nl=False)
    for line in (line for fit in fitting for line in fit_lines(fit)) if form == "text" else ():
        click.echo(line)
    if not planned.report.ok:
        _show(planned.report)
    if any(d.severity is Severity.ERROR for d in planned.report):
        return _refused(planned.report, file)
    exceeding = _exceeding(planned.reports, max_arena)
    if exceeding:
        click.echo("\n".join(f"error: {line}; nothing is written" for line in exceeding), err=True)
        return 1
    planned.write(output, chosen.certificate)
    if form == "text":
        _say_written(output, chosen.certificate, planned.report.summary.always_valid)
    return 0


def _fits(reports: Sequence[FunctionReport], limit: int | None) -> list[FunctionFit]:
    """Return the shapes at which each function fits, where that was asked."""
    from symalloc.planner.memory_report.fitting import fit_function
    from symalloc.prover.prover import Prover

    prover = Prover()
    return [] if limit is None else [fit_function(report, limit, prover) for report in reports]


def _exceeding(reports: Sequence[FunctionReport], limit: int | None) -> list[str]:
    """Say of which functions the arenas are not proved to take at most `limit` bytes."""
    from symalloc.planner.memory_report.fitting import arena_proof
    from symalloc.prover.prover import Prover
    from symalloc.report.fit_text import exceeding_line

    if limit is None:
        return []
    prover = Prover()
    proofs = [(report.plan.function, arena_proof(report, limit, prover)) for report in reports]
    return [exceeding_line(name, proof, limit) for name, proof in proofs if not proof.holds]


def _say_written(output: Path | None, certificate: Path | None, proved: int) -> None:
    if output is not None or certificate is not None:
        click.echo()
    if output is not None:
        click.echo(f"wrote {output}: linted, {proved} constraints proved")
    if certificate is not None:
        click.echo(f"wrote the proofs to {certificate}")


def _show(report: Report) -> None:
    """Shows what the linter finds in a planned module."""
    from symalloc.report.text import render_text

    click.echo(render_text(report, width=terminal_width(sys.stderr), quiet=True), err=True, nl=False)


def _refused(report: Report, file: Path) -> int:
    """Says whose fault it is that nothing is written."""
    before = all(d.stage is None for d in report if d.severity is Severity.ERROR)
    whose = (
        f"the module has these faults before it is planned; `symalloc lint {file}` shows where"
        if before
        else "the planned module does not lint clean"
    )
    click.echo(f"error: {whose}; nothing is written", err=True)
    return 1


def _form(output: Path | None) -> Literal["json", "script"] | None:
    if output is None:
        return None
    if output.suffix not in FORMS:
        raise UsageError(f"{output}: the name must end in .json or .py, which says how the module is written")
    if not output.parent.is_dir():
        raise UsageError(f"cannot write {output}: there is no directory {output.parent}")
    return FORMS[output.suffix]
