"""`symalloc run`: run a module, planned, at given sizes, and compare it with the unplanned one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from symalloc.errors import UsageError

if TYPE_CHECKING:
    from symalloc.relax.run_result import RunResult

__all__ = ["run_command"]

EPILOG = """\
Exit status: 0, or 1 when --check finds a difference, 2 for wrong usage, or a module that cannot be read,
planned, built or run.
"""


@click.command(epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--bind", multiple=True, metavar="NAME=N", help="The value of a symbol, such as n=128.")
@click.option("--check", is_flag=True, help="Compare with the unplanned module, bit for bit.")
@click.option("--function", help="The function to run, where there are several.")
@click.option("--module", help="The module to run, where the file holds several.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="For the random arguments."
)
@click.option(
    "--repeat", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="How many calls."
)
@click.option("--target", default="llvm", show_default=True, help="The TVM target; it must run on the CPU.")
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
def run_command(file: Path, bind: tuple[str, ...], **options: Any) -> int:
    """Plan the Relax module in FILE, build it for the CPU and run it on random arguments."""
    from symalloc.planning import run_path

    result = run_path(file, _bindings(bind), **options)
    click.echo("".join(f"{line}\n" for line in _described(result)), nl=False)
    return 1 if result.difference is not None else 0


def _bindings(texts: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in (part for text in texts for part in text.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name:
            raise UsageError(f"--bind {part}: expected NAME=NUMBER, such as n=128")
        try:
            number = int(value)
        except ValueError:
            raise UsageError(f"--bind {part}: {value!r} is no whole number") from None
        if found.setdefault(name, number) != number:
            raise UsageError(f"--bind gives `{name}` two values, {found[name]} and {number}")
    return found


def _described(result: RunResult) -> list[str]:
    at = ", ".join(f"{name} = {value}" for name, value in result.binding.items())
    outputs = ", ".join(f"{o.dtype}{list(o.shape)}" for o in result.outputs) or "nothing"
    lines = [
        f"{result.function}({at}) returns {outputs}",
        _arena(result),
        f"time: {_microseconds(median(result.seconds))}, median of {len(result.seconds)}",
    ]
    if result.difference is not None:
        lines.append(f"DIFFERENT from the unplanned module: {result.difference}")
    elif result.checked:
        lines.append("the same as the unplanned module, bit for bit")
    return lines


def _arena(result: RunResult) -> str:
    if not result.planned:
        return "arena: none, there was no tensor to plan"
    return f"arena: {result.arena_bytes} B for {result.planned} tensors, floor: {result.floor_bytes} B"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs" if seconds < 0.01 else f"{seconds * 1e3:.1f} ms"
