"""Output to a terminal, a pipe or a file; options that verbs share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from symalloc.errors import UsageError, meant
from symalloc.session.files import write_atomically

Command = TypeVar("Command", bound=Callable[..., Any])


class PathName(click.Path):
    """A path that is not empty: an empty one would stand for the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; an error where the text is empty, as an unset variable of a shell is."""
        if value == "":
            self.fail("an empty path was given", param, ctx)
        return super().convert(value, param, ctx)


rules_option = click.option(
    "--rules", multiple=True, type=PathName(path_type=Path), help="A folder or file with rules of your own."
)


class OneOf(click.Choice[str]):
    """One of some words; the one that is nearest to a wrong one is named."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """The message of click, with a suggestion."""
        said = super().get_invalid_choice_message(value, ctx)
        return f"{said.removesuffix('.')}{meant(value, self.choices)}"


def format_option(of: str) -> Callable[[Command], Command]:
    """--format: text or json."""
    return click.option(
        "--format", "form", type=OneOf(("text", "json")), default="text", help=f"The format of {of}."
    )


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
        return
    show_bytes(text.encode(), file)


def keep_apart(option: str, written: Path | None, others: Iterable[Path | None]) -> None:
    """Raise UsageError where the file that `option` names is one of `others`: it would be overwritten."""
    if written is None:
        return
    for other in others:
        if other is not None and (written == other or _is_same(written, other)):
            raise UsageError(f"{option} {written}: it would overwrite {other}, which this run needs")


def _is_same(a: Path, b: Path) -> bool:
    try:
        return a.is_file() and a.samefile(b)
    except OSError:
        return False


def wrote(file: Path, what: str) -> None:
    """Say on standard error that `what` is in `file`."""
    click.echo(f"wrote {file}: {what}", err=True)


def show_bytes(data: bytes, file: Path) -> None:
    """Write `data` to `file`; raises UsageError where it cannot be written."""
    try:
        write_atomically(file, data)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from None
