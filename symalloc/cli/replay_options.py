"""Options of verbs that replay traces: those of symalloc's pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from symalloc.pool.pool_options import PoolOptions

Command = TypeVar("Command", bound=Callable[..., Any])

REPLAY_OPTIONS = ("soft_limit", "limit", "page")


def replay_options(command: Command) -> Command:
    """--soft-limit, --limit and --page."""
    for decorator in reversed(_OPTIONS):
        command = decorator(command)
    return command


def pool_options_of(options: dict[str, Any]) -> PoolOptions:
    """Take the values of `replay_options` out of `options`; raises PoolUsageError."""
    from symalloc.pool.pool_options import PoolOptions, parse_bytes, parse_soft_limit

    soft_limit, limit, page = (options.pop(name) for name in REPLAY_OPTIONS)
    return PoolOptions(
        soft_limit=parse_soft_limit(soft_limit),
        limit=None if limit is None else parse_bytes(limit),
        page=parse_bytes(page),
    )


_OPTIONS = (
    click.option(
        "--soft-limit",
        default="1.1",
        show_default=True,
        metavar="RATIO|BYTES|none",
        help="Above it, symalloc's pool gives free pages back before it takes more: a ratio to the most "
        "bytes used so far (a number below 100), or an amount such as 512MiB.",
    ),
    click.option(
        "--limit",
        metavar="BYTES",
        help="The most bytes that symalloc's pool may reserve; past it, allocations fail.",
    ),
    click.option(
        "--page",
        default="64KiB",
        show_default=True,
        metavar="BYTES",
        help="The unit in which memory is given back.",
    ),
)
