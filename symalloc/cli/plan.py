"""`symalloc plan`: plan the memory of a module, prove it, write the planned module."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import click

from symalloc.cli.output import terminal_width
from symalloc.errors import UsageError
from symalloc.files import write_atomically
from symalloc.lint.diagnostic import Report, Severity

__all__ = ["plan_command"]

EPILOG = """\
Exit status: 0 when the planned module is written, 1 when the linter finds an error in it (nothing is
written then), 2 for wrong usage, a module that cannot be read or lowered, or a plan that cannot be
proved.
"""

FORMS: dict[str, Literal["json", "script"]] = {".json": "json", ".py": "script"}


@click.command(epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the planned module here: TVMScript (.py) or JSON (.json).",
)
@click.option(
    "--format", "form", type=click.Choice(("text", "json")), default="text", help="How to show plans."
)
@click.option("--module", help="The module to plan, where the file holds several.")
@click.option("--target", default="llvm", show_default=True, help="The TVM target to lower for.")
@click.option(
    "--pipeline",
    "flavour",
    type=click.Choice(("default", "target")),
    default="default",
    help="TVM's default pipeline, or the target's own, which fuses operators.",
)
@click.option(
    "--trust", is_flag=True, help="Run whatever the script holds. Never for code you have not read."
)
def plan_command(file: Path, output: Path | None, form: str, **options: Any) -> int:
    """Plan the memory of the Relax module in FILE (TVMScript or JSON) and write the planned module."""
    from symalloc.planning import plan_path
    from symalloc.report.plan import plans_as_json, plans_as_text
    from symalloc.report.text import render_text

    planned = plan_path(file, form=_form(output), **options)
    click.echo((plans_as_json if form == "json" else plans_as_text)(planned.summaries), nl=False)
    if not planned.report.ok:
        click.echo(
            render_text(planned.report, width=terminal_width(sys.stderr), quiet=True), err=True, nl=False
        )
        click.echo(f"error: {_refusal(planned.report, file)}; nothing is written", err=True)
        return 1
    if output is not None:
        _write(output, planned.text)
        if form == "text":
            proved = planned.report.summary.always_valid
            click.echo(f"\nwrote {output}: linted, {proved} constraints proved")
    return 0


def _refusal(report: Report, file: Path) -> str:
    """Whose faults the findings in a planned module are."""
    if all(d.stage is None for d in report if d.severity is not Severity.NOTE):
        return f"the module has these faults before it is planned; `symalloc lint {file}` shows where"
    return "the planned module does not lint clean"


def _form(output: Path | None) -> Literal["json", "script"]:
    if output is None:
        return "json"
    if output.suffix not in FORMS:
        raise UsageError(f"{output}: the name must end in .json or .py, which says how the module is written")
    if not output.parent.is_dir():
        raise UsageError(f"cannot write {output}: there is no directory {output.parent}")
    return FORMS[output.suffix]


def _write(output: Path, text: str) -> None:
    try:
        write_atomically(output, text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from None
