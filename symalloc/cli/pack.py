"""`symalloc pack`: packing problems, static or symbolic, packed and proved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from symalloc.cli.click_options import from_table, given_as, path_argument
from symalloc.cli.output import progress, show, step, wrote
from symalloc.errors import UsageError
from symalloc.options import PATH, choice
from symalloc.planner.memory_plan import PackOptions
from symalloc.session.files import explained, require_folder_of

if TYPE_CHECKING:
    from symalloc.planner.packing.packing_problem import Packing, PackingProblem

EPILOG = """\
The floor is the lower bound: the largest sum of bytes that are live at the same time, or the end of a buffer
at a fixed offset.  Ratios are bytes of the arena over bytes of the floor, at sizes that go far past the
declared bounds.  A column `offset` fixes buffers; MiniMalloc's other columns are read by all their names.

Exit status: 0 if all is packed and proved, 1 if a packing does not fit the capacity, 2 for wrong usage or an
invalid problem.  `symalloc schema pack-problem` and `symalloc schema pack` describe the JSON.
"""


@click.command(epilog=EPILOG)
@path_argument("files", nargs=-1, required=True, metavar="FILE...")
@from_table(PackOptions, "capacity", "effort", "seed")
@given_as(
    "--format",
    "form",
    kind=choice(("text", "json", "csv")),
    help="A table, JSON, or MiniMalloc's CSV with offsets. [default: text]",
)
@given_as(
    "-o",
    "--output",
    kind=PATH,
    metavar="OUT",
    help="Write the answer to this file, or, for several problems, to this folder as NAME.json or NAME.csv.",
)
@from_table(PackOptions, "certificate")
def pack_command(
    files: tuple[Path, ...], form: str | None, output: Path | None, certificate: Path | None, **search: Any
) -> int:
    """Pack the buffers of each FILE into one arena, and prove the packing for all shapes.

    A FILE is JSON or MiniMalloc's CSV.
    """
    from symalloc.session.planning import pack, read_problem

    problems = [read_problem(file) for file in files]
    outputs = _outputs(files, problems, form, output)
    folders = [certificate / file.stem if certificate and len(files) > 1 else certificate for file in files]
    packings: list[Packing] = []
    with progress("packing"):
        for folder, problem in zip(folders, problems, strict=True):
            step(len(packings), len(problems), problem.source)
            packings.append(pack(problem, certificate=folder, **search))
    _show(packings, search["capacity"], form, outputs)
    return int(any(p.overrun is not None for p in packings))


def _outputs(
    files: Sequence[Path], problems: Sequence[PackingProblem], form: str | None, output: Path | None
) -> list[tuple[Path, str]]:
    """Return the file and the form of each answer; nothing where it all goes to standard output.

    Raises UsageError where that cannot be, before anything is packed.
    """
    named = [output] if len(files) == 1 and output else files
    forms = [form or ("csv" if file.suffix.lower() == ".csv" else "json") for file in named]
    for file, problem, kind in zip(files, problems, forms, strict=True):
        if problem.symbols and kind == "csv" and (form or output):
            raise UsageError(f"{file}: its sizes have symbols, which CSV cannot hold; use --format json")
    if output is None:
        if form == "csv" and len(files) > 1:
            raise UsageError("CSV goes to standard output for one problem only; give -o DIR")
        return []
    if "text" in forms:
        raise UsageError("the table goes to standard output; -o writes answers as JSON or CSV")
    if len(files) == 1 and not output.is_dir():
        require_folder_of(output)
        return [(output, forms[0])]
    paths = [output / f"{file.stem}.{suffix}" for file, suffix in zip(files, forms, strict=True)]
    if len(set(paths)) < len(paths):
        raise UsageError("two of the problems have the same file name: their answers would be one file")
    with explained(f"cannot make the directory {output}"):
        output.mkdir(parents=True, exist_ok=True)
    return list(zip(paths, forms, strict=True))


def _show(
    packings: Sequence[Packing], capacity: int | None, form: str | None, outputs: Sequence[tuple[Path, str]]
) -> None:
    """Write the answers, and on standard output the table, or the answers where they have no files."""
    from symalloc.report.pack_text import overrun_text, packing_as_csv, packings_as_json, packings_as_text

    for packing, (path, kind) in zip(packings, outputs, strict=False):
        show(packing_as_csv(packing) if kind == "csv" else packings_as_json([packing]), path)
        wrote(path, f"{len(packing.offsets)} offsets, proved")
    if outputs or form in (None, "text"):
        show(packings_as_text(packings), plain=False)
    else:
        show(packing_as_csv(packings[0]) if form == "csv" else packings_as_json(packings), None)
    for packing in packings:
        if packing.overrun is not None and capacity is not None:
            click.echo(f"error: {overrun_text(packing, capacity)}", err=True)
