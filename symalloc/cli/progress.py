"""A progress bar on standard error, on a terminal, for what takes longer than a second."""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

PATIENCE = 1.0  # seconds before a bar appears


class Progress:
    """Shows progress: `with Progress("linting") as step: step(done, total, what)`.

    Silent where standard error is no terminal.
    """

    def __init__(self, title: str, *, shown: bool = True) -> None:
        self._title = title
        self._shown = shown and sys.stderr is not None and sys.stderr.isatty()
        self._started = monotonic()
        self._bar: Bar | None = None

    def __enter__(self) -> Progress:
        return self

    def __call__(self, done: int, total: int, what: str) -> None:
        """Show that `done` of `total` steps are done, and `what` is being done."""
        if not self._shown or (self._bar is None and monotonic() - self._started < PATIENCE):
            return
        if self._bar is None:
            self._bar = _new_bar()
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=total, what=what)
        self._bar.update(self._task, completed=done, total=total, what=what)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _new_bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
