"""Options that the user wrote where they would have no effect."""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.core import ParameterSource

from symalloc.errors import UsageError

__all__ = ["refuse_given"]


def refuse_given(names: Iterable[str], why: str) -> None:
    """Raise UsageError, which ends in `why`, where the command line has one of these options."""
    context = click.get_current_context()
    flags = {param.name: max(param.opts, key=len) for param in context.command.params}
    given = [flags[n] for n in names if context.get_parameter_source(n) is ParameterSource.COMMANDLINE]
    if given:
        raise UsageError(f"{', '.join(given)} would have no effect: {why}")
