"""Output to a terminal, a pipe or a file: colours, progress, what --color and -q say of them."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from symalloc.errors import UsageError
from symalloc.session.files import write_file

if TYPE_CHECKING:
    from rich.progress import Progress

Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)
PATIENCE = 1.0  # seconds before a bar appears
_QUIET = "symalloc.quiet"
_COLOURS = {"auto": None, "always": True, "never": False}
_LOGGER = logging.getLogger("symalloc")


def printing_option(
    *names: str,
    text: Callable[[], str],
    help: str,  # noqa: A002
) -> Callable[[Command], Command]:
    """An option that prints a text and ends the run."""

    def show_text(context: click.Context, _: click.Parameter, asked: bool) -> None:
        if asked and not context.resilient_parsing:
            click.echo(text(), nl=False)
            context.exit()

    return click.option(
        *names, is_flag=True, expose_value=False, is_eager=True, callback=show_text, help=help
    )


def output_options(command: Command) -> Command:
    """--color and -q, which all verbs take, and which may stand in front of the verb."""

    def set_colour(context: click.Context, _: click.Parameter, choice: str | None) -> None:
        if choice is not None:
            context.color = _COLOURS[choice]

    def set_quiet(context: click.Context, _: click.Parameter, quiet: bool) -> None:
        if quiet:
            context.meta[_QUIET] = True
            context.call_on_close(partial(_LOGGER.setLevel, _LOGGER.level))
            _LOGGER.setLevel(logging.ERROR)

    colour = click.option(
        "--color",
        type=click.Choice([*_COLOURS]),
        expose_value=False,
        callback=set_colour,
        help="When to use colours: auto is on a terminal, unless NO_COLOR is set.",
    )
    quiet = click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=set_quiet,
        help="Print the answer only: no progress, no summary, no remarks.",
    )
    return quiet(colour(command))


def is_quiet() -> bool:
    """True where -q was given."""
    return bool(click.get_current_context().meta.get(_QUIET))


def colour_wanted(stream: TextIO | None) -> bool:
    """True where output on `stream` (None: closed) is coloured.  Without --color NO_COLOR is respected."""
    chosen = click.get_current_context().color
    if chosen is not None:
        return chosen
    return stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")


def terminal_width(stream: TextIO | None) -> int | None:
    """Columns of the terminal behind `stream`; None where it is none."""
    return shutil.get_terminal_size().columns if stream is not None and stream.isatty() else None


def show(text: str, file: Path | None = None, *, plain: bool = True) -> None:
    """Write `text` to `file`, or to standard output, where it may have colours of its own, or is given some
    unless `plain`.  Raises UsageError where the file cannot be written.
    """
    if file is not None:
        write_file(file, text.encode())
        return
    if not plain and colour_wanted(sys.stdout):
        from symalloc.report.text import highlighted

        text = highlighted(text)
    click.echo(text, nl=False, color=True)


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


def remark(text: str) -> None:
    """Say something beside the answer, on standard error, unless -q was given."""
    if not is_quiet():
        click.echo(text, err=True)


def wrote(file: Path, what: str) -> None:
    """Say that `what` is in `file`."""
    remark(f"wrote {file}: {what}")


def step(done: int, total: int, what: str) -> None:
    """Say what is done now, after `done` of `total`."""
    _LOGGER.info(what, extra={"done": done, "total": total})


@contextmanager
def progress(title: str) -> Iterator[None]:
    """A bar on a terminal, after a moment; what is logged within, here or by a child process, is a step."""
    silent = is_quiet() or _LOGGER.isEnabledFor(logging.INFO)
    if silent or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    told = (TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in ("count", "what"))
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), *told)
    console = Console(stderr=True, no_color=not colour_wanted(sys.stderr))
    bar = Progress(*columns, console=console, transient=True)
    handler, level = _Steps(bar, title), _LOGGER.level
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        _LOGGER.setLevel(level)
        _LOGGER.removeHandler(handler)
        bar.stop()


class LogLines(logging.Handler):
    """Writes what is logged to standard error, above a bar."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


class _Steps(logging.Handler):
    """Shows what is logged as a step on a bar, of so many where the record says that."""

    def __init__(self, bar: Progress, title: str) -> None:
        super().__init__()
        self._bar, self._started = bar, monotonic()
        self._task = bar.add_task(title, total=None, count="", what="")

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            return
        if monotonic() - self._started > PATIENCE:
            self._bar.start()
        done, total = getattr(record, "done", 0), getattr(record, "total", None)
        count, what = f"{done}/{total}" if total else "", record.getMessage()
        self._bar.update(self._task, completed=done, total=total, count=count, what=what)
