"""Output to a terminal, a pipe or a file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from symalloc.errors import UsageError
from symalloc.session.files import write_file

Command = TypeVar("Command", bound=Callable[..., Any])


def printing_option(
    name: str,
    text: Callable[[], str],
    help: str,  # noqa: A002
) -> Callable[[Command], Command]:
    """An option that prints a text and ends the run."""

    def show_text(context: click.Context, _: click.Parameter, asked: bool) -> None:
        if asked and not context.resilient_parsing:
            click.echo(text(), nl=False)
            context.exit()

    return click.option(name, is_flag=True, expose_value=False, is_eager=True, callback=show_text, help=help)


def colour_wanted(choice: str, stream: TextIO | None) -> bool:
    """True where output on `stream` (None: closed) is coloured; `choice` is auto, always or never.

    Auto respects NO_COLOR.
    """
    if choice != "auto":
        return choice == "always"
    return stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")


def terminal_width(stream: TextIO | None) -> int | None:
    """Columns of the terminal behind `stream`; None where it is none."""
    return shutil.get_terminal_size().columns if stream is not None and stream.isatty() else None


def show(text: str, file: Path | None) -> None:
    """Write `text` to `file`, or to standard output; raises UsageError where the file cannot be written."""
    if file is None:
        click.echo(text, nl=False, color=True)
    else:
        write_file(file, text.encode())


def keep_apart(option: str, written: Path | None, others: Iterable[Path | None]) -> None:
    """Raise UsageError where the file that `option` names is one of `others`: it would be overwritten."""
    if written is None:
        return
    for other in others:
        same = other is not None and written == other
        with suppress(OSError):
            same = same or (other is not None and written.is_file() and written.samefile(other))
        if same:
            raise UsageError(f"{option} {written}: it would overwrite {other}, which this run needs")


def wrote(file: Path, what: str) -> None:
    """Say on standard error that `what` is in `file`."""
    click.echo(f"wrote {file}: {what}", err=True)
